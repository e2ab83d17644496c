//! The Wikipedia Parquet schema: string columns `id`, `url`, `title` and `text`, in many shards.
//!
//! Read by record batches, so that a shard of any size takes the memory of some rows.

use std::fs::File;
use std::path::Path;

use ::parquet::arrow::ProjectionMask;
use ::parquet::arrow::arrow_reader::{ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder};
use arrow::array::{Array, LargeStringArray, RecordBatch, StringArray, StringViewArray};
use arrow::datatypes::DataType;

use super::Output;
use crate::document::Document;
use crate::error::{Error, Result};
use crate::files;

/// Columns, in the order in which [`read`] takes them.
const COLUMNS: [&str; 4] = ["id", "url", "title", "text"];

/// Rows decoded at a time: at most some megabytes of articles.
const BATCH_ROWS: usize = 256;

/// Reads every row of a shard.
pub fn read(path: &Path, output: &mut Output<'_>) -> Result<()> {
    let mut row = 0;
    for batch in batches(path)? {
        let batch = batch.map_err(|error| {
            damaged(
                path,
                format!("row group after row {row}"),
                &error.to_string(),
            )
        })?;
        for index in 0..batch.num_rows() {
            output.document(document(&batch, index, path, row)?)?;
            row += 1;
        }
    }
    Ok(())
}

fn batches(path: &Path) -> Result<ParquetRecordBatchReader> {
    let file: File = files::open(path)?.into_inner();
    let builder = ParquetRecordBatchReaderBuilder::try_new(file)
        .map_err(|error| damaged(path, "", &error.to_string()))?;
    let mut types = Vec::new();
    for name in COLUMNS {
        let field = builder.schema().field_with_name(name).map_err(|_| {
            let found: Vec<_> = builder
                .schema()
                .fields()
                .iter()
                .map(|field| field.name().as_str())
                .collect();
            Error::input(
                path,
                "",
                format!(
                    "has no column {name:?}; the columns id, url, title and text are needed, \
                     found are {}",
                    found.join(", ")
                ),
            )
        })?;
        types.push((name, field.data_type().clone()));
    }
    for (name, found) in types {
        if !matches!(
            found,
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View
        ) {
            return Err(Error::input(
                path,
                format!("column {name:?}"),
                format!("holds {found}, strings are needed"),
            ));
        }
    }
    let mask = ProjectionMask::columns(builder.parquet_schema(), COLUMNS);
    builder
        .with_projection(mask)
        .with_batch_size(BATCH_ROWS)
        .build()
        .map_err(|error| damaged(path, "", &error.to_string()))
}

fn document(batch: &RecordBatch, index: usize, path: &Path, row: u64) -> Result<Document> {
    let [id, url, title, text] = COLUMNS.map(|name| {
        string(batch, name, index).ok_or_else(|| {
            Error::input(path, format!("row {row}, column {name:?}"), "has no value")
        })
    });
    Ok(Document {
        id: id?,
        url: url?,
        title: title?,
        text: text?,
        flags: Vec::new(),
    })
}

pub(super) fn string(batch: &RecordBatch, name: &str, index: usize) -> Option<String> {
    let column = batch.column_by_name(name)?;
    if column.is_null(index) {
        return None;
    }
    let any = column.as_any();
    let value = if let Some(array) = any.downcast_ref::<StringArray>() {
        array.value(index)
    } else if let Some(array) = any.downcast_ref::<LargeStringArray>() {
        array.value(index)
    } else {
        any.downcast_ref::<StringViewArray>()?.value(index)
    };
    Some(value.to_owned())
}

pub(super) fn damaged(path: &Path, place: impl Into<String>, problem: &str) -> Error {
    let problem = problem.lines().next().unwrap_or_default();
    Error::input(
        path,
        place,
        format!("is damaged or cut short: {problem}; fetch the file again"),
    )
}
