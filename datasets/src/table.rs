//! The Parquet tables of a study: one record type a table, one line a column.
//!
//! A record type states its table with [`record!`](crate::record), from which the writer, the
//! reader and the check of the schema follow. Equal rows give equal bytes: no time and no host is
//! written. A reader refuses a file whose columns are not exactly the stated ones, and names the
//! file and the column.
//!
//! | table | columns |
//! |---|---|
//! | `documents` | id, title, url, text: text; sha256 of the text; origin; flags: list of text |
//! | `tokens` | document, article, title, cluster, origin: text; ids: list u32; length: u64; eligible: bool; reason: text or null |
//! | `buckets` | trial, group, epochs: u32; document, cluster: text |
//! | `background` | row: u32; held_out: bool; ids, segments: list u32; documents: list of text |
//! | `exclusions` | document, title, reason, other: text; start: u32 or null; ids: list u32 |
//! | `near_duplicates` | cluster, first, second: text; share: f64; run, start: u32; text: text |
//! | `contamination` | trial: u32; document, cluster: text; run: u32; start: u32 or null; other: text or null; epochs: u32 or null |
//! | `snapshot_runs` | document: text; run: u32; start: u32 or null; other: text or null |
//! | `schedule` | trial, step, row: u32; document: text or null; background: u32 or null; presentation: u32 |
//! | `exposures` | arm: text; trial, step: u32; rate: f64; document: text; presentation, kept_tokens: u32; kept_suffix, suffix: list u32 |

mod cell;
mod compare;

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::{ParquetRecordBatchReaderBuilder, RowSelection};
use parquet::basic::{Compression, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;

pub use cell::Cell;
pub use compare::{Difference, close, differences};

use crate::background::{Exclusion, PackedRow, Reason};
use crate::bucket::Assignment;
use crate::contamination::Contamination;
use crate::created_after::SnapshotRun;
use crate::document::{Document, Flag};
use crate::eligibility::TokenDocument;
use crate::error::{Error, Result};
use crate::exposure::Exposure;
use crate::files;
use crate::near_duplicates::NearDuplicate;
use crate::schedule::Slot;

/// Rows handed to Parquet at a time.
const BATCH_ROWS: usize = 1024;

/// Rows of a row group, which a reader must hold at once.
const GROUP_ROWS: usize = 16 * BATCH_ROWS;

/// One column: its name, its type, and whether it may be null.
pub struct Column {
    name: &'static str,
    data_type: DataType,
    nullable: bool,
}

impl Column {
    /// A column whose cells are of type `C`.
    pub fn of<C: Cell>(name: &'static str) -> Self {
        Self {
            name,
            data_type: C::data_type(),
            nullable: C::NULLABLE,
        }
    }
}

/// The columns of a batch of rows as they are read.
pub struct Batch<'a> {
    path: &'a Path,
    columns: RecordBatch,
}

impl Batch<'_> {
    /// The number of rows.
    pub fn rows(&self) -> usize {
        self.columns.num_rows()
    }

    /// The cells of a column.
    pub fn cells<C: Cell>(&self, name: &str) -> Result<std::vec::IntoIter<C>> {
        let bad = |message: String| Error::input(self.path, format!("column {name}"), message);
        let column = self
            .columns
            .column_by_name(name)
            .ok_or_else(|| bad("is missing".to_owned()))?;
        if !C::NULLABLE && column.null_count() > 0 {
            return Err(bad("has empty cells, which it may not".to_owned()));
        }
        let cells = (0..self.rows()).map(|row| C::read(column.as_ref(), row).map_err(&bad));
        Ok(cells.collect::<Result<Vec<C>>>()?.into_iter())
    }
}

/// A row of a table; see [`record!`](crate::record).
pub trait Record: Sized {
    /// The name of the table.
    const TABLE: &'static str;

    /// The columns in their order.
    fn columns() -> Vec<Column>;

    /// Rows to columns.
    fn arrays(rows: &[&Self]) -> Vec<ArrayRef>;

    /// Columns to rows.
    fn rows(batch: &Batch) -> Result<Vec<Self>>;
}

/// States the table of a record type: its name, and each field with the type of its cells.
///
/// ```
/// use axmem_datasets::{record, table};
///
/// #[derive(Debug, PartialEq)]
/// struct Timing { step: u32, seconds: f64, note: Option<String> }
/// record!(Timing as "timings" { step: u32, seconds: f64, note: Option<String> });
///
/// let folder = tempfile::tempdir().unwrap();
/// let path = folder.path().join("timings.parquet");
/// let rows = [Timing { step: 1, seconds: 0.5, note: None }];
/// table::write(&path, &rows)?;
/// assert_eq!(table::read::<Timing>(&path)?, rows);
/// # Ok::<(), axmem_datasets::Error>(())
/// ```
#[macro_export]
macro_rules! record {
    ($record:ty as $table:literal { $($field:ident: $cell:ty),+ $(,)? }) => {
        impl $crate::table::Record for $record {
            const TABLE: &'static str = $table;

            fn columns() -> Vec<$crate::table::Column> {
                vec![$($crate::table::Column::of::<$cell>(stringify!($field))),+]
            }

            fn arrays(rows: &[&Self]) -> Vec<$crate::table::Array> {
                vec![$({
                    let cells: Vec<&$cell> = rows.iter().map(|row| &row.$field).collect();
                    <$cell as $crate::table::Cell>::array(&cells)
                }),+]
            }

            fn rows(batch: &$crate::table::Batch) -> $crate::Result<Vec<Self>> {
                $(let mut $field = batch.cells::<$cell>(stringify!($field))?;)+
                Ok((0..batch.rows())
                    .map_while(|_| Some(Self { $($field: $field.next()?),+ }))
                    .collect())
            }
        }
    };
}

/// A column of values as Arrow holds it, named here for [`record!`](crate::record).
pub type Array = ArrayRef;

/// An article as stored: the document, the hash of its text and the source it came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DocumentRow {
    /// Article id.
    pub id: String,
    /// Title.
    pub title: String,
    /// Address, empty if unknown.
    pub url: String,
    /// Plain text.
    pub text: String,
    /// SHA-256 of the text in hexadecimal.
    pub sha256: String,
    /// The source.
    pub origin: String,
    /// What a user of the text should know.
    pub flags: Vec<Flag>,
}

impl DocumentRow {
    /// The row of a document from the source `origin`.
    pub fn new(document: Document, origin: &str) -> Self {
        Self {
            sha256: files::sha256(document.text.as_bytes()),
            origin: origin.to_owned(),
            id: document.id,
            title: document.title,
            url: document.url,
            text: document.text,
            flags: document.flags,
        }
    }

    /// The document of the row.
    pub fn into_document(self) -> Document {
        Document {
            id: self.id,
            title: self.title,
            url: self.url,
            text: self.text,
            flags: self.flags,
        }
    }
}

record!(DocumentRow as "documents" {
    id: String, title: String, url: String, text: String, sha256: String, origin: String,
    flags: Vec<Flag>,
});
record!(TokenDocument as "tokens" {
    document: String, article: String, title: String, cluster: String, origin: String,
    ids: Vec<u32>, length: usize, eligible: bool, reason: Option<String>,
});
record!(Assignment as "buckets" {
    trial: u32, group: u32, epochs: u32, document: String, cluster: String,
});
record!(PackedRow as "background" {
    row: u32, held_out: bool, ids: Vec<u32>, segments: Vec<u32>, documents: Vec<String>,
});
record!(Exclusion as "exclusions" {
    document: String, title: String, reason: Reason, other: String, start: Option<u32>,
    ids: Vec<u32>,
});
record!(NearDuplicate as "near_duplicates" {
    cluster: String, first: String, second: String, share: f64, run: u32, start: u32,
    text: String,
});
record!(Contamination as "contamination" {
    trial: u32, document: String, cluster: String, run: u32, start: Option<u32>,
    other: Option<String>, epochs: Option<u32>,
});
record!(SnapshotRun as "snapshot_runs" {
    document: String, run: u32, start: Option<u32>, other: Option<String>,
});
record!(Slot as "schedule" {
    trial: u32, step: u32, row: u32, document: Option<String>, background: Option<u32>,
    presentation: u32,
});
record!(Exposure as "exposures" {
    model: String, arm: String, trial: u32, step: u32, rate: f64, document: String, presentation: u32,
    kept_tokens: u32, kept_suffix: Vec<u32>, suffix: Vec<u32>,
});

/// Writes a table, whole or not at all.
pub fn write<'a, R: Record + 'a>(
    path: impl AsRef<Path>,
    rows: impl IntoIterator<Item = &'a R>,
) -> Result<()> {
    write_batches(path.as_ref(), |push| {
        let mut rows = rows.into_iter();
        loop {
            let batch: Vec<&R> = rows.by_ref().take(BATCH_ROWS).collect();
            if batch.is_empty() {
                return Ok(());
            }
            push(&batch)?;
        }
    })
}

/// Writes a table from rows as `fill` hands them over, without holding all of them; nothing
/// appears under `path` if it fails.
pub fn write_with<R: Record>(
    path: impl AsRef<Path>,
    fill: impl FnOnce(&mut dyn FnMut(R) -> Result<()>) -> Result<()>,
) -> Result<()> {
    write_batches(path.as_ref(), |push| {
        let mut waiting: Vec<R> = Vec::with_capacity(BATCH_ROWS);
        fill(&mut |row| {
            waiting.push(row);
            if waiting.len() == BATCH_ROWS {
                push(&waiting.iter().collect::<Vec<_>>())?;
                waiting.clear();
            }
            Ok(())
        })?;
        push(&waiting.iter().collect::<Vec<_>>())
    })
}

fn write_batches<R: Record>(
    path: &Path,
    fill: impl FnOnce(&mut dyn FnMut(&[&R]) -> Result<()>) -> Result<()>,
) -> Result<()> {
    let fields: Vec<Field> = R::columns()
        .into_iter()
        .map(|column| Field::new(column.name, column.data_type, column.nullable))
        .collect();
    let schema = Arc::new(Schema::new(fields));
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_max_row_group_row_count(Some(GROUP_ROWS))
        .build();
    files::write_atomic_with(path, |file| {
        let failed = |error: ParquetError| write_error(path, error);
        let mut writer =
            ArrowWriter::try_new(&mut *file, schema.clone(), Some(properties)).map_err(failed)?;
        fill(&mut |rows| {
            let batch = RecordBatch::try_new(schema.clone(), R::arrays(rows))
                .map_err(|error| failed(error.into()))?;
            writer.write(&batch).map_err(failed)
        })?;
        writer.close().map(drop).map_err(failed)
    })
}

/// Keeps the system's own error, from which a full disk is told.
fn write_error(path: &Path, error: ParquetError) -> Error {
    let source = match error {
        ParquetError::External(cause) => match cause.downcast::<std::io::Error>() {
            Ok(source) => *source,
            Err(cause) => std::io::Error::other(cause),
        },
        other => std::io::Error::other(other),
    };
    Error::write("write", path)(source)
}

/// Reads a whole table.
pub fn read<R: Record>(path: impl AsRef<Path>) -> Result<Vec<R>> {
    let mut rows = Vec::new();
    scan(path, |row| {
        rows.push(row);
        Ok(())
    })?;
    Ok(rows)
}

/// Hands the rows of a table over one by one, holding a batch of them at a time.
pub fn scan<R: Record>(path: impl AsRef<Path>, sink: impl FnMut(R) -> Result<()>) -> Result<()> {
    scan_selected(path.as_ref(), None, sink)
}

/// Reads the rows with these numbers, counted from 0, in the order of `numbers`, which are all different.
pub fn read_rows<R: Record>(path: impl AsRef<Path>, numbers: &[usize]) -> Result<Vec<R>> {
    let mut rising: Vec<usize> = (0..numbers.len()).collect();
    rising.sort_unstable_by_key(|&place| numbers[place]);
    let ranges = rising
        .iter()
        .map(|&place| numbers[place]..numbers[place] + 1);
    let mut found: Vec<Option<R>> = numbers.iter().map(|_| None).collect();
    let mut places = rising.iter();
    let path = path.as_ref();
    scan_selected(path, Some(&ranges.collect::<Vec<_>>()), |row| {
        if let Some(&place) = places.next() {
            found[place] = Some(row);
        }
        Ok(())
    })?;
    found
        .into_iter()
        .collect::<Option<_>>()
        .ok_or_else(|| Error::input(path, "", "has fewer rows than it had".to_owned()))
}

fn scan_selected<R: Record>(
    path: &Path,
    selected: Option<&[Range<usize>]>,
    mut sink: impl FnMut(R) -> Result<()>,
) -> Result<()> {
    let damaged = |error: String| {
        let table = R::TABLE;
        Error::input(
            path,
            "",
            format!("is not a whole Parquet table `{table}`: {error}"),
        )
    };
    let file = files::open(path)?.into_inner();
    let mut reader = ParquetRecordBatchReaderBuilder::try_new(file)
        .map_err(|error| damaged(error.to_string()))?;
    check_schema::<R>(path, reader.schema())?;
    if let Some(selected) = selected {
        let rows = reader.metadata().file_metadata().num_rows() as usize;
        // Of a table that has fewer rows than it had, those that are there.
        let selected = selected.iter().filter(|range| range.end <= rows).cloned();
        let selected = RowSelection::from_consecutive_ranges(selected, rows);
        reader = reader.with_row_selection(selected);
    }
    let batches = reader
        .with_batch_size(BATCH_ROWS)
        .build()
        .map_err(|error| damaged(error.to_string()))?;
    for columns in batches {
        let columns = columns.map_err(|error| damaged(error.to_string()))?;
        for row in R::rows(&Batch { path, columns })? {
            sink(row)?;
        }
    }
    Ok(())
}

fn check_schema<R: Record>(path: &Path, schema: &Schema) -> Result<()> {
    let columns = R::columns();
    let bad = |name: &str, message: String| {
        let message = format!("{message}; table `{}` was expected", R::TABLE);
        Err(Error::input(path, format!("column {name}"), message))
    };
    for column in &columns {
        let Ok(field) = schema.field_with_name(column.name) else {
            return bad(column.name, "is missing".to_owned());
        };
        if !field.data_type().equals_datatype(&column.data_type) {
            let (found, expected) = (field.data_type(), &column.data_type);
            return bad(column.name, format!("has type {found}, not {expected}"));
        }
    }
    let known = |name: &str| columns.iter().any(|column| column.name == name);
    match schema.fields().iter().find(|field| !known(field.name())) {
        Some(field) => bad(field.name(), "is unknown".to_owned()),
        None => Ok(()),
    }
}
