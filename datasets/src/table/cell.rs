//! Values to cells of a Parquet column and back.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray as _, BooleanArray, ListArray, PrimitiveArray, StringArray,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::{DataType, Field, Float32Type, Float64Type, UInt32Type, UInt64Type};

use crate::background::Reason;
use crate::document::Flag;

/// The type of the cells of a column: a number, a flag, a text, an optional one, a list, or an
/// optional list.
pub trait Cell: Sized {
    /// Whether a cell may be null.
    const NULLABLE: bool;

    /// The type as Arrow names it.
    fn data_type() -> DataType;

    /// Cells to a column.
    fn array(cells: &[&Self]) -> ArrayRef;

    /// The cell of a row of a column of this type; the error says what is wrong with the value.
    fn read(column: &dyn Array, row: usize) -> Result<Self, String>;
}

/// A value that Parquet stores by itself, optional or in a list.
trait Scalar: Sized {
    fn data_type() -> DataType;

    fn array(values: &[Option<&Self>]) -> ArrayRef;

    fn read(column: &dyn Array, row: usize) -> Result<Self, String>;
}

macro_rules! number {
    ($value:ty, $arrow:ty, $data_type:expr) => {
        impl Scalar for $value {
            fn data_type() -> DataType {
                $data_type
            }

            fn array(values: &[Option<&Self>]) -> ArrayRef {
                let values = values.iter().map(|value| value.map(|&value| value as _));
                Arc::new(values.collect::<PrimitiveArray<$arrow>>())
            }

            fn read(column: &dyn Array, row: usize) -> Result<Self, String> {
                Ok(column.as_primitive::<$arrow>().value(row) as Self)
            }
        }
    };
}

number!(u32, UInt32Type, DataType::UInt32);
number!(u64, UInt64Type, DataType::UInt64);
number!(usize, UInt64Type, DataType::UInt64);
number!(f32, Float32Type, DataType::Float32);
number!(f64, Float64Type, DataType::Float64);

impl Scalar for bool {
    fn data_type() -> DataType {
        DataType::Boolean
    }

    fn array(values: &[Option<&Self>]) -> ArrayRef {
        let flags = values.iter().map(|value| value.copied());
        Arc::new(flags.collect::<BooleanArray>())
    }

    fn read(column: &dyn Array, row: usize) -> Result<Self, String> {
        Ok(column.as_boolean().value(row))
    }
}

/// Values that are stored by their names.
macro_rules! text {
    ($value:ty) => {
        impl Scalar for $value {
            fn data_type() -> DataType {
                DataType::Utf8
            }

            fn array(values: &[Option<&Self>]) -> ArrayRef {
                let texts = values.iter().map(|value| value.map(ToString::to_string));
                Arc::new(texts.collect::<StringArray>())
            }

            fn read(column: &dyn Array, row: usize) -> Result<Self, String> {
                let text = column.as_string::<i32>().value(row);
                text.parse().map_err(|error| format!("row {row}: {error}"))
            }
        }
    };
}

text!(String);
text!(Flag);
text!(Reason);

/// A list column from the lists of its rows.
fn lists<S: Scalar>(cells: &[Option<&Vec<S>>]) -> ArrayRef {
    let lengths = cells.iter().map(|cell| cell.map_or(0, Vec::len));
    let nulls: NullBuffer = cells.iter().map(Option::is_some).collect();
    let values: Vec<Option<&S>> = cells
        .iter()
        .copied()
        .flatten()
        .flatten()
        .map(Some)
        .collect();
    Arc::new(ListArray::new(
        Arc::new(item::<S>()),
        OffsetBuffer::from_lengths(lengths),
        S::array(&values),
        (nulls.null_count() > 0).then_some(nulls),
    ))
}

fn list<S: Scalar>(column: &dyn Array, row: usize) -> Result<Vec<S>, String> {
    let values = column.as_list::<i32>().value(row);
    (0..values.len())
        .map(|index| S::read(&values, index))
        .collect()
}

fn item<S: Scalar>() -> Field {
    Field::new_list_field(S::data_type(), false)
}

fn optional<'a, T>(cells: &[&'a T]) -> Vec<Option<&'a T>> {
    cells.iter().copied().map(Some).collect()
}

fn inner<'a, T>(cells: &[&'a Option<T>]) -> Vec<Option<&'a T>> {
    cells.iter().map(|cell| cell.as_ref()).collect()
}

macro_rules! cells {
    ($($scalar:ty),+) => {$(
        impl Cell for $scalar {
            const NULLABLE: bool = false;

            fn data_type() -> DataType {
                <$scalar as Scalar>::data_type()
            }

            fn array(cells: &[&Self]) -> ArrayRef {
                <$scalar as Scalar>::array(&optional(cells))
            }

            fn read(column: &dyn Array, row: usize) -> Result<Self, String> {
                <$scalar as Scalar>::read(column, row)
            }
        }

        impl Cell for Option<$scalar> {
            const NULLABLE: bool = true;

            fn data_type() -> DataType {
                <$scalar as Scalar>::data_type()
            }

            fn array(cells: &[&Self]) -> ArrayRef {
                <$scalar as Scalar>::array(&inner(cells))
            }

            fn read(column: &dyn Array, row: usize) -> Result<Self, String> {
                let present = column.is_valid(row);
                present.then(|| <$scalar as Scalar>::read(column, row)).transpose()
            }
        }

        impl Cell for Vec<$scalar> {
            const NULLABLE: bool = false;

            fn data_type() -> DataType {
                DataType::List(Arc::new(item::<$scalar>()))
            }

            fn array(cells: &[&Self]) -> ArrayRef {
                lists(&optional(cells))
            }

            fn read(column: &dyn Array, row: usize) -> Result<Self, String> {
                list(column, row)
            }
        }

        impl Cell for Option<Vec<$scalar>> {
            const NULLABLE: bool = true;

            fn data_type() -> DataType {
                DataType::List(Arc::new(item::<$scalar>()))
            }

            fn array(cells: &[&Self]) -> ArrayRef {
                lists(&inner(cells))
            }

            fn read(column: &dyn Array, row: usize) -> Result<Self, String> {
                let present = column.is_valid(row);
                present.then(|| list(column, row)).transpose()
            }
        }
    )+};
}

cells!(u32, u64, usize, f32, f64, bool, String, Flag, Reason);
