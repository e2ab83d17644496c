//! Where two versions of a table differ.

use std::collections::HashMap;

use arrow::array::{Array, AsArray as _};
use arrow::datatypes::{DataType, Float64Type};
use arrow::util::display::{ArrayFormatter, FormatOptions};

use super::{Array as Values, Record};
use crate::error::{Error, Result};

/// Relative difference of two numbers that the rounding of another machine's functions may explain.
const ROUNDING: f64 = 1e-12;

/// One difference between two tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Difference {
    /// A cell has another value.
    Cell {
        /// The row as counted from 1, and what it is about.
        row: String,
        /// The column.
        column: &'static str,
        /// The value in the first table.
        first: String,
        /// The value in the second table.
        second: String,
    },
    /// A row, as counted from 1 and with what it is about, is in the first table only.
    Added(String),
    /// What a row of the second table is about; the first table has none such.
    Missing(String),
}

/// All differences between two tables, in the order of the first; `keys` are the columns that say what a row is about.
/// Rows are matched by these, so that one row too many is one difference. Equal rows in another order are none, nor is the
/// last digit of a number.
///
/// # Errors
/// A value that can't be printed.
pub fn differences<R: Record>(first: &[R], second: &[R], keys: &[&str]) -> Result<Vec<Difference>> {
    let names: Vec<&'static str> = R::columns().iter().map(|column| column.name).collect();
    let (first, second) = (Table::new(first), Table::new(second));
    if first.rows == second.rows
        && (first.columns.iter().zip(&second.columns)).all(|(a, b)| a.to_data() == b.to_data())
    {
        return Ok(Vec::new());
    }
    let keys: Vec<usize> = (0..names.len())
        .filter(|&column| keys.contains(&names[column]))
        .collect();
    let (first_labels, second_labels) = (first.labels(&keys)?, second.labels(&keys)?);
    let mut rows: HashMap<&str, Vec<usize>> = HashMap::new();
    for (row, label) in second_labels.iter().enumerate().rev() {
        rows.entry(label).or_default().push(row);
    }
    let mut found = Vec::new();
    for (row, label) in first_labels.iter().enumerate() {
        let place = format!("row {} ({label})", row + 1);
        let Some(other) = rows.get_mut(label.as_str()).and_then(Vec::pop) else {
            found.push(Difference::Added(place));
            continue;
        };
        for (column, name) in names.iter().enumerate() {
            let (a, b) = (&first.columns[column], &second.columns[column]);
            if !same(a, row, b, other) {
                found.push(Difference::Cell {
                    row: place.clone(),
                    column: name,
                    first: text(a, row)?,
                    second: text(b, other)?,
                });
            }
        }
    }
    let mut missing: Vec<usize> = rows.into_values().flatten().collect();
    missing.sort_unstable();
    let label = |row: usize| Difference::Missing(second_labels[row].clone());
    found.extend(missing.into_iter().map(label));
    Ok(found)
}

/// The columns of some rows.
struct Table {
    rows: usize,
    columns: Vec<Values>,
}

impl Table {
    fn new<R: Record>(rows: &[R]) -> Self {
        Self {
            rows: rows.len(),
            columns: R::arrays(&rows.iter().collect::<Vec<_>>()),
        }
    }

    /// What each row is about: its cells in some columns.
    fn labels(&self, columns: &[usize]) -> Result<Vec<String>> {
        let label = |row: usize| -> Result<String> {
            let cells = columns
                .iter()
                .map(|&column| text(&self.columns[column], row));
            Ok(cells.collect::<Result<Vec<_>>>()?.join(", "))
        };
        (0..self.rows).map(label).collect()
    }
}

fn same(a: &Values, row: usize, b: &Values, other: usize) -> bool {
    if a.slice(row, 1).to_data() == b.slice(other, 1).to_data() {
        return true;
    }
    if *a.data_type() != DataType::Float64 || a.is_null(row) || b.is_null(other) {
        return false;
    }
    let number = |column: &Values, row| column.as_primitive::<Float64Type>().value(row);
    close(number(a, row), number(b, other))
}

/// Whether two numbers are equal but for the rounding of another machine's functions.
pub fn close(a: f64, b: f64) -> bool {
    a.to_bits() == b.to_bits() || (a - b).abs() <= ROUNDING * a.abs().max(b.abs())
}

fn text(column: &Values, row: usize) -> Result<String> {
    let options = FormatOptions::default().with_null("null");
    let formatter = ArrayFormatter::try_new(column.as_ref(), &options);
    formatter
        .and_then(|formatter| formatter.value(row).try_to_string())
        .map_err(|error| Error::data(format!("a value of a table can't be printed: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record;

    #[derive(Clone)]
    struct Line {
        arm: String,
        bucket: u32,
        rate: Option<f64>,
        hits: Vec<u32>,
    }

    record!(Line as "rates" { arm: String, bucket: u32, rate: Option<f64>, hits: Vec<u32> });

    fn rates() -> Vec<Line> {
        let rate = |arm: &str, bucket, rate| Line {
            arm: arm.to_owned(),
            bucket,
            rate,
            hits: vec![bucket, 1],
        };
        vec![
            rate("standard", 0, None),
            rate("standard", 8, Some(0.25)),
            rate("goldfish", 8, Some(0.1)),
        ]
    }

    fn found(first: &[Line], second: &[Line]) -> Vec<Difference> {
        differences(first, second, &["arm", "bucket"]).unwrap()
    }

    #[test]
    fn every_cell_that_differs_is_named_with_both_values() {
        let mut edited = rates();
        edited[0].rate = Some(0.0);
        edited[1].rate = Some(0.5);
        edited[2].hits = vec![8];
        let cell = |row: &str, column, first: &str, second: &str| Difference::Cell {
            row: row.to_owned(),
            column,
            first: first.to_owned(),
            second: second.to_owned(),
        };
        assert_eq!(
            found(&edited, &rates()),
            [
                cell("row 1 (standard, 0)", "rate", "0.0", "null"),
                cell("row 2 (standard, 8)", "rate", "0.5", "0.25"),
                cell("row 3 (goldfish, 8)", "hits", "[8]", "[8, 1]"),
            ]
        );
    }

    #[test]
    fn rows_are_matched_by_what_they_are_about() {
        let whole = rates();
        assert!(found(&whole, &whole).is_empty());
        assert_eq!(
            found(&whole[1..], &whole),
            [Difference::Missing("standard, 0".to_owned())]
        );
        let doubled = [&whole[..], &whole[2..]].concat();
        assert_eq!(
            found(&doubled, &whole),
            [Difference::Added("row 4 (goldfish, 8)".to_owned())]
        );
    }

    #[test]
    fn only_the_last_digits_are_rounding() {
        let mut other = rates();
        other[2].rate = Some(0.1 + 1e-16);
        assert!(found(&other, &rates()).is_empty());
        other[2].rate = Some(0.1 + 1e-9);
        assert_eq!(found(&other, &rates()).len(), 1);
        assert!(close(0.0, 0.0) && !close(0.0, 1e-300) && !close(f64::NAN, 1.0));
    }
}
