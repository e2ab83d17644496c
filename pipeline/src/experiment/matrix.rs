//! `matrix`: one file, an experiment for every combination of values.
//!
//! A key of the matrix is a dotted path, its value a list, or a mapping from labels to values. Each
//! value is put in as `--set` would; the names of the experiments end with the values or labels.

use super::limits;
use super::tree::{Node, Place, Problem, Value};

/// A key that is swept.
struct Axis {
    key: String,
    place: Place,
    /// Labels and values.
    values: Vec<(String, Node)>,
}

/// The experiments of a tree, the last key of the matrix changing fastest; the tree itself if it has no matrix.
///
/// # Errors
/// A matrix that is no such mapping, sweeps what cannot be swept, or has too many combinations.
pub(super) fn expand(mut tree: Node) -> Result<Vec<Node>, Problem> {
    let Some((place, matrix)) = tree.take("matrix") else {
        return Ok(vec![tree]);
    };
    let axes = axes(matrix)?;
    check(&axes, place)?;
    let mut trees = vec![tree];
    for axis in &axes {
        let mut next = Vec::new();
        for tree in &trees {
            for (label, value) in &axis.values {
                next.push(with(tree, axis, label, value)?);
            }
        }
        trees = next;
    }
    let mut names: Vec<&str> = trees.iter().filter_map(name).collect();
    names.sort_unstable();
    if let Some([name, ..]) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        let message = format!(
            "two experiments would be called {name}; label the values, as in `train.batch: {{ small: 4, large: 8 }}`"
        );
        return Err(Problem::new(place, "matrix", message));
    }
    Ok(trees)
}

/// The key of the matrix that puts another value where `--set` has put one.
pub(super) fn hides<'a>(tree: &'a Node, set: &str) -> Option<&'a str> {
    let Value::Map(axes) = &tree.get("matrix")?.value else {
        return None;
    };
    axes.iter()
        .filter(|(_, _, node)| !matches!(node.value, Value::Null))
        .map(|(key, _, _)| key.as_str())
        .find(|key| covers(key, set))
}

fn axes(matrix: Node) -> Result<Vec<Axis>, Problem> {
    let entries = match matrix.value {
        Value::Null => return Ok(Vec::new()),
        Value::Map(entries) => entries,
        other => {
            let message = format!(
                "expected a mapping from keys to lists, such as `train.batch: [4, 8]`, found {}",
                other.describe()
            );
            return Err(Problem::new(matrix.place, "matrix", message));
        }
    };
    let mut axes = Vec::new();
    for (key, place, node) in entries {
        if !matches!(node.value, Value::Null) {
            axes.push(axis(key, place, node)?);
        }
    }
    Ok(axes)
}

fn axis(key: String, place: Place, node: Node) -> Result<Axis, Problem> {
    let path = format!("matrix.{key}");
    let refuse = |place, message: String| Err(Problem::new(place, &path, message));
    if ["name", "extends", "matrix"].contains(&key.as_str()) {
        return refuse(place, "cannot be swept".to_owned());
    }
    let values = match node.value {
        Value::List(items) => {
            let mut values = Vec::new();
            for item in items {
                let Some(label) = label(&item.value) else {
                    let message = format!(
                        "{} has no short name; give the values labels, as in `{key}: {{ first: ..., second: ... }}`",
                        item.value.describe()
                    );
                    return refuse(item.place, message);
                };
                values.push((label, item));
            }
            values
        }
        Value::Map(entries) => entries
            .into_iter()
            .map(|(label, _, value)| (label, value))
            .collect(),
        other => {
            let message = format!(
                "expected a list of values, or a mapping from labels to values, found {}",
                other.describe()
            );
            return refuse(node.place, message);
        }
    };
    if values.is_empty() {
        return refuse(place, "has no value; remove the key".to_owned());
    }
    Ok(Axis { key, place, values })
}

/// The end of a name for a plain value: a number as short as it can be written, and text with `-` for what names
/// cannot have.
fn label(value: &Value) -> Option<String> {
    Some(match value {
        Value::Bool(value) => value.to_string(),
        Value::Unsigned(value) => value.to_string(),
        Value::Signed(value) => value.to_string(),
        Value::Float(value) => {
            let (plain, exponent) = (value.to_string(), format!("{value:e}"));
            if exponent.len() < plain.len() {
                exponent
            } else {
                plain
            }
        }
        Value::Text(text) => {
            let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '+');
            text.chars()
                .map(|c| if plain(c) { c } else { '-' })
                .collect()
        }
        Value::Null | Value::List(_) | Value::Map(_) => return None,
    })
}

fn check(axes: &[Axis], place: Place) -> Result<(), Problem> {
    let count = axes
        .iter()
        .try_fold(1, |count: usize, axis| count.checked_mul(axis.values.len()));
    let most = *limits::LIST.end();
    if count.is_none_or(|count| count > most) {
        let message = format!("has more than {most} combinations; write several files");
        return Err(Problem::new(place, "matrix", message));
    }
    for (index, axis) in axes.iter().enumerate() {
        if let Some(other) = axes[..index]
            .iter()
            .find(|other| covers(&other.key, &axis.key) || covers(&axis.key, &other.key))
        {
            let path = format!("matrix.{}", axis.key);
            let message = format!("sweeps what {} sweeps too; keep one of them", other.key);
            return Err(Problem::new(axis.place, &path, message));
        }
    }
    Ok(())
}

/// Whether the branch at `key` holds that at `other`.
fn covers(key: &str, other: &str) -> bool {
    other
        .strip_prefix(key)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// The tree with one value of an axis, and a longer name.
fn with(tree: &Node, axis: &Axis, label: &str, value: &Node) -> Result<Node, Problem> {
    let mut tree = tree.clone();
    tree.set(&axis.key, value.clone())
        .map_err(|message| Problem::new(axis.place, &format!("matrix.{}", axis.key), message))?;
    // A file without a name is refused like any other.
    if let Some(longer) = name(&tree).map(|name| format!("{name}-{label}")) {
        let name = Node {
            place: tree.place_of("name"),
            value: Value::Text(longer),
        };
        tree.set("name", name)
            .map_err(|message| Problem::new(axis.place, "name", message))?;
    }
    Ok(tree)
}

/// The name of the study, if it is there.
pub(super) fn name(tree: &Node) -> Option<&str> {
    match &tree.get("name")?.value {
        Value::Text(name) => Some(name),
        _ => None,
    }
}
