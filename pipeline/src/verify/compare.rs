//! What was found beside what the records give: values, tables, JSON, text.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::Path;

use axmem_datasets::{files, table};
use serde_json::Value;

/// Most characters shown of a value.
const WIDTH: usize = 100;
/// What is shown of a value before the first difference.
const BEFORE: usize = 24;
/// Fields that say what a row of a summary is about.
const ABOUT: [&str; 13] = [
    "set", "model", "arm", "trial", "bucket", "kind", "measure", "time", "from", "to", "suffix",
    "prefix", "method",
];

/// A place of a file with another value than expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Change {
    /// Row and column, field, or line.
    pub(super) place: String,
    /// What is there; nothing if it is missing.
    pub(super) found: Option<String>,
    /// What should be there; nothing if it should not be.
    pub(super) expected: Option<String>,
    /// Whether `expected` was computed now; else it is on record.
    is_computed: bool,
}

impl Change {
    /// A value that differs from the one on record.
    pub(super) fn recorded(
        place: impl Into<String>,
        found: impl Display,
        expected: impl Display,
    ) -> Self {
        Self {
            is_computed: false,
            ..Self::computed(place, Some(found.to_string()), Some(expected.to_string()))
        }
    }

    /// A value that differs from the one computed now.
    pub(super) fn computed(
        place: impl Into<String>,
        found: Option<String>,
        expected: Option<String>,
    ) -> Self {
        Self {
            place: place.into(),
            found,
            expected,
            is_computed: true,
        }
    }

    /// Such as `row 3 (…), rate: 0.5, computed again 0.25`.
    pub(super) fn sentence(&self) -> String {
        let source = if self.is_computed {
            "computed again"
        } else {
            "on record"
        };
        let place = &self.place;
        match (&self.found, &self.expected) {
            (Some(found), Some(expected)) => {
                let (found, expected) = around(found, expected);
                format!("{place}: {found}, {source} {expected}")
            }
            (None, Some(expected)) => {
                format!("{place}: missing, {source} {}", around(expected, "").0)
            }
            (Some(found), None) => format!("{place}: {}, {source} nothing", around(found, "").0),
            (None, None) => place.clone(),
        }
    }
}

/// The two values from shortly before their first difference.
fn around(found: &str, expected: &str) -> (String, String) {
    let same = (found.chars().zip(expected.chars()))
        .take_while(|(a, b)| a == b)
        .count();
    let is_long = |text: &str| text.chars().nth(WIDTH).is_some();
    let start = if is_long(found) || is_long(expected) {
        same.saturating_sub(BEFORE)
    } else {
        0
    };
    let cut = |text: &str| {
        let before = if start > 0 { "…" } else { "" };
        let mut rest = text.chars().skip(start);
        let part: String = rest.by_ref().take(WIDTH).collect();
        let after = if rest.next().is_some() { "…" } else { "" };
        format!("{before}{part}{after}")
    };
    (cut(found), cut(expected))
}

/// The differences of a table as changes.
pub(super) fn tables(differences: Vec<table::Difference>) -> Vec<Change> {
    let change = |difference| match difference {
        table::Difference::Cell {
            row,
            column,
            first,
            second,
        } => Change::computed(format!("{row}, {column}"), Some(first), Some(second)),
        table::Difference::Added(row) => {
            Change::computed(row, Some("in the table".to_owned()), None)
        }
        table::Difference::Missing(row) => {
            Change::computed("a row", None, Some(format!("({row})")))
        }
    };
    differences.into_iter().map(change).collect()
}

/// Where a JSON file differs from the one that is expected.
pub(super) fn json(found: &Value, expected: &Value) -> Vec<Change> {
    let mut changes = Vec::new();
    values("", found, expected, &mut changes);
    changes
}

fn values(place: &str, found: &Value, expected: &Value, changes: &mut Vec<Change>) {
    let inside = |name: &str| match place {
        "" => name.to_owned(),
        place => format!("{place}.{name}"),
    };
    match (found, expected) {
        (Value::Object(a), Value::Object(b)) => {
            for (name, expected) in b {
                match a.get(name) {
                    Some(found) => values(&inside(name), found, expected, changes),
                    None => changes.push(Change::computed(
                        inside(name),
                        None,
                        Some(expected.to_string()),
                    )),
                }
            }
            for (name, found) in a.iter().filter(|(name, _)| !b.contains_key(*name)) {
                changes.push(Change::computed(
                    inside(name),
                    Some(found.to_string()),
                    None,
                ));
            }
        }
        (Value::Array(a), Value::Array(b)) => rows(place, a, b, changes),
        (Value::Number(a), Value::Number(b)) => {
            let is_same = match (a.as_f64(), b.as_f64()) {
                (Some(x), Some(y)) => a == b || ((a.is_f64() || b.is_f64()) && table::close(x, y)),
                _ => a == b,
            };
            if !is_same {
                push(place, found, expected, changes);
            }
        }
        _ if found == expected => {}
        _ => push(place, found, expected, changes),
    }
}

fn push(place: &str, found: &Value, expected: &Value, changes: &mut Vec<Change>) {
    let (found, expected) = (found.to_string(), expected.to_string());
    changes.push(Change::computed(place, Some(found), Some(expected)));
}

/// Entries of a list, matched by what they are about, so that one too many is one change.
fn rows(place: &str, found: &[Value], expected: &[Value], changes: &mut Vec<Change>) {
    let mut waiting: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (index, row) in expected.iter().enumerate().rev() {
        waiting.entry(about(row, index)).or_default().push(index);
    }
    for (index, row) in found.iter().enumerate() {
        let about = about(row, index);
        let place = if row.is_object() && !about.is_empty() {
            format!("{place}[{index}] ({about})")
        } else {
            format!("{place}[{index}]")
        };
        match waiting.get_mut(&about).and_then(Vec::pop) {
            Some(other) => values(&place, row, &expected[other], changes),
            None => changes.push(Change::computed(place, Some(row.to_string()), None)),
        }
    }
    for index in waiting.into_values().flatten() {
        let row = expected[index].to_string();
        changes.push(Change::computed(
            format!("an entry of {place}"),
            None,
            Some(row),
        ));
    }
}

/// What a row of a summary is about; of anything else, its place in the list.
fn about(row: &Value, index: usize) -> String {
    let Value::Object(fields) = row else {
        return index.to_string();
    };
    let words = ABOUT.iter().filter_map(|name| match fields.get(*name)? {
        Value::String(word) => Some(word.clone()),
        Value::Null | Value::Object(_) | Value::Array(_) => None,
        other => Some(other.to_string()),
    });
    words.collect::<Vec<_>>().join(", ")
}

/// Where a text differs from the one that is expected: line by line if it has as many lines, else at the first difference.
pub(super) fn text(found: &str, expected: &str) -> Vec<Change> {
    let (a, b): (Vec<&str>, Vec<&str>) = (found.lines().collect(), expected.lines().collect());
    let differing = a.iter().zip(&b).enumerate().filter(|(_, (a, b))| a != b);
    let change = |(line, (a, b)): (usize, (&&str, &&str))| {
        let column = a.chars().zip(b.chars()).take_while(|(a, b)| a == b).count();
        let place = format!("line {}, column {}", line + 1, column + 1);
        Change::computed(place, Some((*a).to_owned()), Some((*b).to_owned()))
    };
    if a.len() == b.len() {
        let mut changes: Vec<Change> = differing.map(change).collect();
        if changes.is_empty() && found != expected {
            changes.push(Change::computed("white space differs", None, None));
        }
        return changes;
    }
    let mut changes: Vec<Change> = differing.take(1).map(change).collect();
    changes.push(Change::computed(
        "number of lines",
        Some(a.len().to_string()),
        Some(b.len().to_string()),
    ));
    changes
}

/// Where a file differs from the one that is expected, by the kind of the file.
pub(super) fn file(name: &str, found: &[u8], expected: &[u8]) -> Vec<Change> {
    if found == expected {
        return Vec::new();
    }
    let Ok(expected) = std::str::from_utf8(expected) else {
        let (found, expected) = (files::sha256(found), files::sha256(expected));
        return vec![Change::computed(
            "SHA-256 of the picture",
            Some(found),
            Some(expected),
        )];
    };
    if Path::new(name).extension().is_some_and(|end| end == "json")
        && let (Ok(a), Ok(b)) = (
            serde_json::from_slice(found),
            serde_json::from_str(expected),
        )
    {
        let changes = json(&a, &b);
        if !changes.is_empty() {
            return changes;
        }
    }
    text(&String::from_utf8_lossy(found), expected)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_row_of_a_summary_is_named_with_both_values() {
        let row = |arm: &str, rate: f64| json!({ "arm": arm, "trial": 0, "rate": rate });
        let expected = json!({ "rows": [row("a", 0.1), row("b", 0.2)], "seconds": 1 });
        let found = json!({ "rows": [row("b", 0.3)], "seconds": 1, "more": null });
        let sentences: Vec<String> = json(&found, &expected)
            .iter()
            .map(Change::sentence)
            .collect();
        assert_eq!(
            sentences,
            [
                "rows[0] (b, 0).rate: 0.3, computed again 0.2",
                r#"an entry of rows: missing, computed again {"arm":"a","trial":0,"rate":0.1}"#,
                "more: null, computed again nothing",
            ]
        );
        assert!(json(&expected, &expected).is_empty());
    }

    #[test]
    fn lines_are_shown_from_shortly_before_their_difference() {
        let long = |middle: &str| format!("{}{middle}{}", "x".repeat(200), "y".repeat(200));
        let changes = text(
            &format!("same\n{}\n", long("1")),
            &format!("same\n{}\n", long("2")),
        );
        assert_eq!(changes.len(), 1);
        assert_eq!(changes[0].place, "line 2, column 201");
        let sentence = changes[0].sentence();
        assert!(
            sentence.contains("…xxxxxxxxxxxxxxxxxxxxxxxx1yyy"),
            "{sentence}"
        );
        assert!(
            sentence.contains("…xxxxxxxxxxxxxxxxxxxxxxxx2yyy"),
            "{sentence}"
        );
        assert_eq!(text("a\n", "a").len(), 1);
        assert_eq!(text("a\nb\n", "a\n")[0].place, "number of lines");
    }

    #[test]
    fn numbers_may_differ_by_rounding_but_integers_may_not() {
        let is_same = |a: Value, b: Value| json(&a, &b).is_empty();
        assert!(is_same(json!(0.1), json!(0.1 + 1e-17)));
        assert!(!is_same(json!(0.1), json!(0.1001)));
        assert!(!is_same(
            json!(9_007_199_254_740_993_u64),
            json!(9_007_199_254_740_992_u64)
        ));
    }
}
