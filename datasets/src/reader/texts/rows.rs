//! Documents as the rows of a Parquet file, some rows at a time.

use std::path::Path;

use ::parquet::arrow::ProjectionMask;
use ::parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use arrow::array::{Array, AsArray as _, RecordBatch};
use arrow::datatypes::{DataType, Int32Type, Int64Type, SchemaRef, UInt32Type, UInt64Type};

use super::Taker;
use crate::error::Result;
use crate::files;
use crate::reader::parquet::{damaged, string};

/// Rows decoded at a time.
const BATCH_ROWS: usize = 256;

/// Columns that are known and carry nothing an audit uses.
const PASSED_OVER: [&str; 2] = ["title", "url"];

pub(super) fn read(path: &Path, taker: &mut Taker) -> Result<()> {
    let file = files::open(path)?.into_inner();
    let builder = ParquetRecordBatchReaderBuilder::try_new(file)
        .map_err(|error| damaged(path, "", &error.to_string()))?;
    let columns = columns(builder.schema(), taker)?;
    let mask = ProjectionMask::columns(builder.parquet_schema(), columns);
    let batches = builder
        .with_projection(mask)
        .with_batch_size(BATCH_ROWS)
        .build()
        .map_err(|error| damaged(path, "", &error.to_string()))?;
    let mut row = 0_u64;
    for batch in batches {
        let batch = batch.map_err(|error| {
            damaged(
                path,
                format!("row group after row {row}"),
                &error.to_string(),
            )
        })?;
        for index in 0..batch.num_rows() {
            if taker.is_full() {
                return Ok(());
            }
            document(&batch, index, row, taker)?;
            row += 1;
        }
    }
    Ok(())
}

/// The columns to read; notes those that are not used.
fn columns(schema: &SchemaRef, taker: &mut Taker) -> Result<Vec<&'static str>> {
    let mut wanted = Vec::new();
    for name in ["id", "text", "cluster"] {
        let Ok(field) = schema.field_with_name(name) else {
            if name == "cluster" {
                continue;
            }
            let found: Vec<_> = schema
                .fields()
                .iter()
                .map(|field| field.name().as_str())
                .collect();
            return Err(taker.error(
                "",
                format!(
                    "has no column {name:?}; the columns id and text are needed, found are {}",
                    found.join(", ")
                ),
            ));
        };
        let is_text = matches!(
            field.data_type(),
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View
        );
        let is_number = matches!(
            field.data_type(),
            DataType::Int32 | DataType::Int64 | DataType::UInt32 | DataType::UInt64
        );
        if !is_text && (name == "text" || !is_number) {
            let needed = if name == "text" {
                "strings"
            } else {
                "strings or whole numbers"
            };
            return Err(taker.error(
                format!("column {name:?}"),
                format!("holds {}, {needed} are needed", field.data_type()),
            ));
        }
        wanted.push(name);
    }
    let unused: Vec<_> = schema
        .fields()
        .iter()
        .map(|field| field.name().as_str())
        .filter(|name| !wanted.contains(name) && !PASSED_OVER.contains(name))
        .collect();
    if !unused.is_empty() {
        taker.notes.push(format!(
            "columns other than id, text and cluster are not used: {}",
            unused.join(", ")
        ));
    }
    Ok(wanted)
}

fn document(batch: &RecordBatch, index: usize, row: u64, taker: &mut Taker) -> Result<()> {
    let place = format!("row {row}");
    let id = value(batch, "id", index)
        .ok_or_else(|| taker.error(&place, "has no \"id\"; give each document one of its own"))?;
    let text = value(batch, "text", index).ok_or_else(|| {
        taker.error(
            &place,
            format!("document {id:?} has no \"text\"; every document needs one"),
        )
    })?;
    taker.take(&place, id, text, value(batch, "cluster", index))
}

/// A cell as text; `None` if it is null or the column is not there.
fn value(batch: &RecordBatch, name: &str, index: usize) -> Option<String> {
    let column = batch.column_by_name(name)?;
    if column.is_null(index) {
        return None;
    }
    match column.data_type() {
        DataType::Int32 => Some(column.as_primitive::<Int32Type>().value(index).to_string()),
        DataType::Int64 => Some(column.as_primitive::<Int64Type>().value(index).to_string()),
        DataType::UInt32 => Some(column.as_primitive::<UInt32Type>().value(index).to_string()),
        DataType::UInt64 => Some(column.as_primitive::<UInt64Type>().value(index).to_string()),
        _ => string(batch, name, index),
    }
}
