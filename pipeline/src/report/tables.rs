//! Result tables as typed rows, read with polars.
//!
//! Owns: the names of the columns the report needs and the conversion of each to one Rust type.
//! It reads whole tables except `tokens`, which can be as large as the corpus: of that, only the
//! short columns, and single rows of ids. It may not join, filter or aggregate; `study` does.

use std::fs::File;
use std::path::Path;

use anyhow::{Context, Result, anyhow};
use polars::prelude::{Column, DataFrame, DataType, ParquetReader, SerReader, Series};

/// One row of `estimates`: a rate with one interval method.
#[derive(Clone, Debug, Default)]
pub(super) struct Estimate {
    pub model: String,
    pub parameters: u64,
    pub family: String,
    pub tokenizer: String,
    pub arm: String,
    /// `pooled`, or the number of one trial.
    pub trial: String,
    pub bucket: String,
    pub exposures_nominal: u32,
    pub exposures_ledger: Option<f64>,
    pub time: String,
    pub suffix: u32,
    pub prefix: String,
    pub documents: u64,
    pub clusters: u64,
    pub hits: u64,
    pub fragile: u64,
    pub hits_without_fragile: u64,
    pub hits_with_fragile: u64,
    pub token_accuracy: Option<f64>,
    pub mean_log_probability: Option<f64>,
    pub rate: f64,
    pub low: Option<f64>,
    pub high: Option<f64>,
    pub level: f64,
    pub method: String,
    pub dtype: String,
}

/// One row of `contrasts`: a difference with one interval.
#[derive(Clone, Debug, Default)]
pub(super) struct Contrast {
    pub model: String,
    pub arm: String,
    pub bucket: String,
    pub kind: String,
    /// `exact` (differences of rates) or `log_probability` (in nats).
    pub measure: String,
    pub suffix: u32,
    pub prefix: String,
    pub from: String,
    pub to: String,
    pub estimate: Option<f64>,
    pub low: Option<f64>,
    pub high: Option<f64>,
    pub level: f64,
    pub p: Option<f64>,
    pub p_adjusted: Option<f64>,
    pub family: String,
    pub method: String,
    pub detectable: Option<f64>,
    pub z: Option<f64>,
    pub clusters: u64,
}

/// One row of `overlap`: the 2×2 table of one bucket between two times.
#[derive(Clone, Debug, Default)]
pub(super) struct Overlap {
    pub model: String,
    pub arm: String,
    pub trial: String,
    pub bucket: String,
    pub suffix: u32,
    pub prefix: String,
    pub from: String,
    pub to: String,
    pub kept: u64,
    pub gained: u64,
    pub lost: u64,
    pub never: u64,
    pub jaccard: Option<f64>,
}

/// One row of `transitions`: one document between two times.
#[derive(Clone, Debug, Default)]
pub(super) struct Transition {
    pub model: String,
    pub arm: String,
    pub trial: String,
    pub bucket: String,
    pub document: String,
    pub suffix: u32,
    pub prefix: String,
    pub from: String,
    pub to: String,
    pub state: String,
}

/// One row of `scores`, without the columns that only `estimate` needs.
#[derive(Clone, Debug, Default)]
pub(super) struct Score {
    pub model: String,
    pub arm: String,
    pub trial: u32,
    pub time: String,
    pub document: String,
    pub epochs: u32,
    pub prefix: String,
    /// Suffix lengths; the next two lists run beside it.
    pub suffix: Vec<u32>,
    pub exact: Vec<bool>,
    pub matched_prefix: Vec<u32>,
    /// Ids of the longest suffix.
    pub target: Vec<u32>,
    /// Ids decoded freely from the prefix, where that was run.
    pub generated: Option<Vec<u32>>,
}

/// One row of `steps`.
#[derive(Clone, Debug, Default)]
#[expect(clippy::struct_field_names, reason = "the name of the column")]
pub(super) struct Step {
    pub model: String,
    pub arm: String,
    pub trial: u32,
    pub phase: String,
    pub step: u64,
    pub loss: f64,
}

/// One row of `validation`.
#[derive(Clone, Debug, Default)]
pub(super) struct Validation {
    pub model: String,
    pub arm: String,
    pub trial: u32,
    pub time: String,
    pub loss: f64,
    pub tokens: u64,
}

/// One row of an exposure ledger.
#[derive(Clone, Debug, Default)]
pub(super) struct Exposure {
    pub model: String,
    pub arm: String,
    pub trial: u32,
    pub document: String,
    pub kept_tokens: u64,
    pub kept_suffix: Vec<u32>,
    pub suffix: Vec<u32>,
}

/// One row of `tokens`, without its ids.
#[derive(Clone, Debug, Default)]
pub(super) struct TokenRow {
    pub document: String,
    pub title: String,
    pub origin: String,
    pub eligible: bool,
    pub reason: String,
}

/// One row of `timings`.
#[derive(Clone, Debug, Default)]
pub(super) struct Timing {
    pub grid: String,
    pub back_end: String,
    pub seconds: f64,
    pub exposed_x: f64,
    pub exposed_y: f64,
    pub exposed_z: f64,
    pub exposed_data: f64,
    pub peak_bytes: u64,
}

/// One row of `exclusions`.
#[derive(Clone, Debug, Default)]
pub(super) struct Exclusion {
    pub document: String,
    pub title: String,
    pub reason: String,
    pub other: String,
}

/// A table in memory, with the path for error messages.
struct Table<'a> {
    path: &'a Path,
    frame: DataFrame,
}

impl<'a> Table<'a> {
    fn open(path: &'a Path) -> Result<Self> {
        Self::load(path, None, None)
    }

    fn load(
        path: &'a Path,
        columns: Option<&[&str]>,
        slice: Option<(usize, usize)>,
    ) -> Result<Self> {
        let file =
            File::open(path).with_context(|| format!("cannot open table {}", path.display()))?;
        let columns = columns.map(|names| names.iter().map(ToString::to_string).collect());
        let frame = ParquetReader::new(file)
            .with_columns(columns)
            .with_slice(slice)
            .finish()
            .with_context(|| format!("cannot read table {}", path.display()))?;
        Ok(Self { path, frame })
    }

    fn column(&self, name: &str) -> Result<&Column> {
        self.frame
            .column(name)
            .map_err(|_| anyhow!("table {} has no column `{name}`", self.path.display()))
    }

    fn cast(&self, name: &str, to: &DataType) -> Result<Column> {
        self.column(name)?.cast(to).with_context(|| {
            format!(
                "column `{name}` of table {} is not of type {to}",
                self.path.display()
            )
        })
    }

    /// Text; a null is the empty string.
    fn texts(&self, name: &str) -> Result<Vec<String>> {
        let column = self.cast(name, &DataType::String)?;
        let cells = column.str()?;
        Ok((0..cells.len())
            .map(|row| cells.get(row).unwrap_or_default().to_owned())
            .collect())
    }

    fn optional_numbers(&self, name: &str) -> Result<Vec<Option<f64>>> {
        let column = self.cast(name, &DataType::Float64)?;
        let cells = column.f64()?;
        Ok((0..cells.len()).map(|row| cells.get(row)).collect())
    }

    /// Numbers; a null is NaN.
    fn numbers(&self, name: &str) -> Result<Vec<f64>> {
        let cells = self.optional_numbers(name)?;
        Ok(cells
            .into_iter()
            .map(|cell| cell.unwrap_or(f64::NAN))
            .collect())
    }

    /// Counts; a null is 0.
    fn counts(&self, name: &str) -> Result<Vec<u64>> {
        let column = self.cast(name, &DataType::UInt64)?;
        let cells = column.u64()?;
        Ok((0..cells.len())
            .map(|row| cells.get(row).unwrap_or_default())
            .collect())
    }

    fn small_counts(&self, name: &str) -> Result<Vec<u32>> {
        let cells = self.counts(name)?;
        Ok(cells.into_iter().map(|cell| cell as u32).collect())
    }

    fn flags(&self, name: &str) -> Result<Vec<bool>> {
        let column = self.cast(name, &DataType::Boolean)?;
        let cells = column.bool()?;
        Ok((0..cells.len())
            .map(|row| cells.get(row).unwrap_or_default())
            .collect())
    }

    /// Lists; a null list is `None`.
    fn lists<T>(
        &self,
        name: &str,
        items: impl Fn(&Series) -> Result<Vec<T>>,
    ) -> Result<Vec<Option<Vec<T>>>> {
        let column = self.column(name)?;
        let cells = column.list().map_err(|_| {
            anyhow!(
                "column `{name}` of table {} is not a list",
                self.path.display()
            )
        })?;
        (0..cells.len())
            .map(|row| {
                cells
                    .get_as_series(row)
                    .map(|series| items(&series))
                    .transpose()
            })
            .collect()
    }

    fn id_lists(&self, name: &str) -> Result<Vec<Option<Vec<u32>>>> {
        self.lists(name, |series| {
            let series = series.cast(&DataType::UInt32)?;
            let items = series.u32()?;
            Ok((0..items.len())
                .filter_map(|index| items.get(index))
                .collect())
        })
    }

    fn flag_lists(&self, name: &str) -> Result<Vec<Option<Vec<bool>>>> {
        self.lists(name, |series| {
            let items = series.bool()?;
            Ok((0..items.len())
                .filter_map(|index| items.get(index))
                .collect())
        })
    }
}

/// Builds the rows of a table from the columns named like their fields; fields filled later come
/// from the value after the semicolon.
macro_rules! rows {
    ($table:expr, $row:ident { $($field:ident : $method:ident),+ $(,)? $(; $rest:expr)? }) => {{
        let table: &Table<'_> = &$table;
        $(let mut $field = table.$method(stringify!($field))?.into_iter();)+
        let mut rows = Vec::with_capacity(table.frame.height());
        for _ in 0..table.frame.height() {
            rows.push($row {
                $($field: $field.next().expect("a column is as long as its table"),)+
                $(..$rest)?
            });
        }
        rows
    }};
}

/// Reads `estimates`.
pub(super) fn estimates(path: &Path) -> Result<Vec<Estimate>> {
    Ok(rows!(
        Table::open(path)?,
        Estimate {
            model: texts,
            parameters: counts,
            family: texts,
            tokenizer: texts,
            arm: texts,
            trial: texts,
            bucket: texts,
            exposures_nominal: small_counts,
            exposures_ledger: optional_numbers,
            time: texts,
            suffix: small_counts,
            prefix: texts,
            documents: counts,
            clusters: counts,
            hits: counts,
            fragile: counts,
            hits_without_fragile: counts,
            hits_with_fragile: counts,
            token_accuracy: optional_numbers,
            mean_log_probability: optional_numbers,
            rate: numbers,
            low: optional_numbers,
            high: optional_numbers,
            level: numbers,
            method: texts,
            dtype: texts,
        }
    ))
}

/// Reads `contrasts`.
pub(super) fn contrasts(path: &Path) -> Result<Vec<Contrast>> {
    Ok(rows!(
        Table::open(path)?,
        Contrast {
            model: texts,
            arm: texts,
            bucket: texts,
            kind: texts,
            measure: texts,
            suffix: small_counts,
            prefix: texts,
            from: texts,
            to: texts,
            estimate: optional_numbers,
            low: optional_numbers,
            high: optional_numbers,
            level: numbers,
            p: optional_numbers,
            p_adjusted: optional_numbers,
            family: texts,
            method: texts,
            detectable: optional_numbers,
            z: optional_numbers,
            clusters: counts,
        }
    ))
}

/// Reads `overlap`.
pub(super) fn overlap(path: &Path) -> Result<Vec<Overlap>> {
    Ok(rows!(
        Table::open(path)?,
        Overlap {
            model: texts,
            arm: texts,
            trial: texts,
            bucket: texts,
            suffix: small_counts,
            prefix: texts,
            from: texts,
            to: texts,
            kept: counts,
            gained: counts,
            lost: counts,
            never: counts,
            jaccard: optional_numbers,
        }
    ))
}

/// Reads `transitions`.
pub(super) fn transitions(path: &Path) -> Result<Vec<Transition>> {
    Ok(rows!(
        Table::open(path)?,
        Transition {
            model: texts,
            arm: texts,
            trial: texts,
            bucket: texts,
            document: texts,
            suffix: small_counts,
            prefix: texts,
            from: texts,
            to: texts,
            state: texts,
        }
    ))
}

/// Reads one table of `scores`.
pub(super) fn scores(path: &Path) -> Result<Vec<Score>> {
    let table = Table::load(
        path,
        Some(&[
            "model",
            "arm",
            "trial",
            "time",
            "document",
            "epochs",
            "prefix",
            "suffix",
            "exact",
            "matched_prefix",
            "target",
            "generated",
        ]),
        None,
    )?;
    let mut rows = rows!(
        table,
        Score {
            model: texts,
            arm: texts,
            trial: small_counts,
            time: texts,
            document: texts,
            epochs: small_counts,
            prefix: texts,
            generated: id_lists;
            Score::default()
        }
    );
    let suffix = table.id_lists("suffix")?;
    let exact = table.flag_lists("exact")?;
    let matched = table.id_lists("matched_prefix")?;
    let target = table.id_lists("target")?;
    for ((((row, suffix), exact), matched), target) in rows
        .iter_mut()
        .zip(suffix)
        .zip(exact)
        .zip(matched)
        .zip(target)
    {
        row.suffix = suffix.unwrap_or_default();
        row.exact = exact.unwrap_or_default();
        row.matched_prefix = matched.unwrap_or_default();
        row.target = target.unwrap_or_default();
    }
    Ok(rows)
}

/// Reads one table of `steps`.
pub(super) fn steps(path: &Path) -> Result<Vec<Step>> {
    Ok(rows!(
        Table::open(path)?,
        Step {
            model: texts,
            arm: texts,
            trial: small_counts,
            phase: texts,
            step: counts,
            loss: numbers,
        }
    ))
}

/// Reads one table of `timings`.
pub(super) fn timings(path: &Path) -> Result<Vec<Timing>> {
    Ok(rows!(
        Table::open(path)?,
        Timing {
            grid: texts,
            back_end: texts,
            seconds: numbers,
            exposed_x: numbers,
            exposed_y: numbers,
            exposed_z: numbers,
            exposed_data: numbers,
            peak_bytes: counts,
        }
    ))
}

/// Reads one table of `validation`.
pub(super) fn validation(path: &Path) -> Result<Vec<Validation>> {
    Ok(rows!(
        Table::open(path)?,
        Validation {
            model: texts,
            arm: texts,
            trial: small_counts,
            time: texts,
            loss: numbers,
            tokens: counts,
        }
    ))
}

/// Reads one exposure ledger.
pub(super) fn exposures(path: &Path) -> Result<Vec<Exposure>> {
    let table = Table::open(path)?;
    let mut rows = rows!(
        table,
        Exposure {
            model: texts,
            arm: texts,
            trial: small_counts,
            document: texts,
            kept_tokens: counts;
            Exposure::default()
        }
    );
    let kept = table.id_lists("kept_suffix")?;
    let suffix = table.id_lists("suffix")?;
    for ((row, kept), suffix) in rows.iter_mut().zip(kept).zip(suffix) {
        row.kept_suffix = kept.unwrap_or_default();
        row.suffix = suffix.unwrap_or_default();
    }
    Ok(rows)
}

/// Reads `tokens` without its ids.
pub(super) fn token_rows(path: &Path) -> Result<Vec<TokenRow>> {
    let columns = ["document", "title", "origin", "eligible", "reason"];
    Ok(rows!(
        Table::load(path, Some(&columns), None)?,
        TokenRow {
            document: texts,
            title: texts,
            origin: texts,
            eligible: flags,
            reason: texts,
        }
    ))
}

/// Reads the ids of row `index` of `tokens`; the other row groups stay on disk.
pub(super) fn token_ids(path: &Path, index: usize) -> Result<Vec<u32>> {
    let table = Table::load(path, Some(&["ids"]), Some((index, 1)))?;
    let ids = table.id_lists("ids")?.into_iter().flatten().next();
    Ok(ids.unwrap_or_default())
}

/// Reads id, title and origin of `documents`.
pub(super) fn titles(path: &Path) -> Result<Vec<(String, String, String)>> {
    let table = Table::load(path, Some(&["id", "title", "origin"]), None)?;
    let ids = table.texts("id")?;
    let titles = table.texts("title")?;
    let origins = table.texts("origin")?;
    let pairs = ids.into_iter().zip(titles).zip(origins);
    Ok(pairs
        .map(|((id, title), origin)| (id, title, origin))
        .collect())
}

/// Reads `exclusions`.
pub(super) fn exclusions(path: &Path) -> Result<Vec<Exclusion>> {
    let columns = ["document", "title", "reason", "other"];
    Ok(rows!(
        Table::load(path, Some(&columns), None)?,
        Exclusion {
            document: texts,
            title: texts,
            reason: texts,
            other: texts,
        }
    ))
}
