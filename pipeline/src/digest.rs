//! Canonical JSON and its SHA-256: the address of everything in the store.

use axmem_datasets::files;
use serde_json::Value;

/// JSON without white space and with the keys of every object in order.
pub fn canonical(value: &Value) -> String {
    let mut text = String::new();
    write(value, &mut text);
    text
}

/// SHA-256 of the canonical JSON, in hexadecimal.
pub fn digest(value: &Value) -> String {
    files::sha256(canonical(value).as_bytes())
}

fn write(value: &Value, text: &mut String) {
    match value {
        Value::Object(entries) => {
            let mut sorted: Vec<_> = entries.iter().collect();
            sorted.sort_unstable_by_key(|(key, _)| *key);
            list(text, ('{', '}'), &sorted, |(key, value), text| {
                text.push_str(&Value::from(key.as_str()).to_string());
                text.push(':');
                write(value, text);
            });
        }
        Value::Array(items) => list(text, ('[', ']'), items, write),
        plain => text.push_str(&plain.to_string()),
    }
}

fn list<T>(text: &mut String, ends: (char, char), items: &[T], each: impl Fn(&T, &mut String)) {
    text.push(ends.0);
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            text.push(',');
        }
        each(item, text);
    }
    text.push(ends.1);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_order_of_keys_does_not_matter_and_all_else_does() {
        let one = json!({"b": [1, {"y": 2, "x": null}], "a": 1e-4});
        let two = json!({"a": 0.0001, "b": [1, {"x": null, "y": 2}]});
        assert_eq!(canonical(&one), r#"{"a":0.0001,"b":[1,{"x":null,"y":2}]}"#);
        assert_eq!(digest(&one), digest(&two));
        assert_ne!(digest(&json!({"a": 1})), digest(&json!({"a": "1"})));
    }

    #[test]
    fn r03_a_dropped_key_changes_the_digest() {
        assert_ne!(
            digest(&json!({"a": 1, "b": null})),
            digest(&json!({"a": 1}))
        );
    }
}
