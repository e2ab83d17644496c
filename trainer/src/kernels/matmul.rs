//! Matrix products on strided views of slices, through the crate `gemm`.
//!
//! The only file of the kernels with `unsafe`: `gemm` takes raw pointers. Its blocking over the inner dimension depends
//! on that dimension alone, so a product does not change with the number of threads. (Very small products take other paths, so one row alone may differ
//! from the same row among many in its last bits.)
#![expect(
    unsafe_code,
    reason = "the crate `gemm` takes raw pointers; bounds are checked here first"
)]

use gemm::Parallelism;

use super::few_rows::{self, Weights};
use super::narrow::Narrow;

/// A read-only matrix inside a slice.
#[derive(Clone, Copy, Debug)]
pub struct Matrix<'a> {
    data: &'a [f32],
    rows: usize,
    columns: usize,
    row_stride: usize,
    column_stride: usize,
}

impl<'a> Matrix<'a> {
    /// A row-major `[rows, columns]` matrix that fills `data`.
    pub fn new(data: &'a [f32], rows: usize, columns: usize) -> Self {
        assert_eq!(data.len(), rows * columns, "matrix [{rows}, {columns}]");
        Self::strided(data, rows, columns, columns)
    }

    /// Rows of `columns` neighbouring values, `row_stride` apart, from the start of `data`.
    pub fn strided(data: &'a [f32], rows: usize, columns: usize, row_stride: usize) -> Self {
        assert_fits(data.len(), rows, columns, row_stride);
        Self {
            data,
            rows,
            columns,
            row_stride,
            column_stride: 1,
        }
    }

    /// The transposed view; nothing moves.
    #[must_use]
    pub fn transposed(self) -> Self {
        Self {
            rows: self.columns,
            columns: self.rows,
            row_stride: self.column_stride,
            column_stride: self.row_stride,
            ..self
        }
    }
}

/// The matrix that a product writes.
#[derive(Debug)]
pub struct MatrixMut<'a> {
    data: &'a mut [f32],
    rows: usize,
    columns: usize,
    row_stride: usize,
}

impl<'a> MatrixMut<'a> {
    /// A row-major `[rows, columns]` matrix that fills `data`.
    pub fn new(data: &'a mut [f32], rows: usize, columns: usize) -> Self {
        assert_eq!(data.len(), rows * columns, "matrix [{rows}, {columns}]");
        Self::strided(data, rows, columns, columns)
    }

    /// Rows of `columns` neighbouring values, `row_stride` apart, from the start of `data`.
    pub fn strided(data: &'a mut [f32], rows: usize, columns: usize, row_stride: usize) -> Self {
        assert_fits(data.len(), rows, columns, row_stride);
        assert!(row_stride >= columns, "rows of an output overlap");
        Self {
            data,
            rows,
            columns,
            row_stride,
        }
    }
}

fn assert_fits(len: usize, rows: usize, columns: usize, row_stride: usize) {
    let needed = match (rows, columns) {
        (0, _) | (_, 0) => 0,
        _ => (rows - 1) * row_stride + columns,
    };
    assert!(
        needed <= len,
        "matrix [{rows}, {columns}] with rows {row_stride} apart needs {needed} values, the slice has {len}"
    );
}

/// What happens to the old content of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// It is overwritten.
    Set,
    /// The product is added to it.
    Add,
}

/// `C = scale · A B` (or `C += …`) with all threads.
pub fn product(c: MatrixMut<'_>, a: Matrix<'_>, b: Matrix<'_>, scale: f32, output: Output) {
    // Starting the threads costs more than a small product.
    let parallelism = if c.rows * c.columns * a.columns < 1 << 16 {
        Parallelism::None
    } else {
        Parallelism::Rayon(0)
    };
    run(c, a, b, scale, output, parallelism);
}

/// `C = scale · A B` (or `C += …`) on the calling thread; for use inside a parallel kernel.
pub fn product_serial(c: MatrixMut<'_>, a: Matrix<'_>, b: Matrix<'_>, scale: f32, output: Output) {
    run(c, a, b, scale, output, Parallelism::None);
}

fn run(
    c: MatrixMut<'_>,
    a: Matrix<'_>,
    b: Matrix<'_>,
    scale: f32,
    output: Output,
    parallelism: Parallelism,
) {
    let MatrixMut {
        data,
        rows,
        columns,
        row_stride,
    } = c;
    assert_eq!(a.rows, rows, "rows of A and C");
    assert_eq!(b.columns, columns, "columns of B and C");
    assert_eq!(a.columns, b.rows, "inner dimension");
    if a.columns == 0 {
        if output == Output::Set {
            for row in 0..rows {
                data[row * row_stride..][..columns].fill(0.0);
            }
        }
        return;
    }
    // SAFETY: the constructors checked that (rows - 1) * row_stride + columns values lie inside each slice, and a
    // transposed view only swaps the roles, so every address that gemm forms is inside its slice. `data` is borrowed
    // mutably, so it overlaps neither `a` nor `b`; its rows do not overlap each other.
    unsafe {
        gemm::gemm(
            rows,
            columns,
            a.columns,
            data.as_mut_ptr(),
            1,
            row_stride as isize,
            output == Output::Add,
            a.data.as_ptr(),
            a.column_stride as isize,
            a.row_stride as isize,
            b.data.as_ptr(),
            b.column_stride as isize,
            b.row_stride as isize,
            1.0,
            scale,
            false,
            false,
            false,
            parallelism,
        );
    }
}

/// `C[m, n] = A[m, k] · B[n, k]ᵀ`: the forward of a linear layer (`B` is its weight `[out, in]`).
///
/// With few rows it is made by a kernel of its own, as sums in another order.
pub fn matmul_nt(c: &mut [f32], a: &[f32], b: &[f32], [m, n, k]: [usize; 3], output: Output) {
    if m <= few_rows::FEW {
        assert_eq!(
            (c.len(), a.len(), b.len()),
            (m * n, m * k, n * k),
            "product [{m}, {n}, {k}]"
        );
        few_rows::product_nt(c, a, Weights::Full(b), [m, n, k], output);
        return;
    }
    let b = Matrix::new(b, n, k).transposed();
    product(
        MatrixMut::new(c, m, n),
        Matrix::new(a, m, k),
        b,
        1.0,
        output,
    );
}

/// As [`matmul_nt`], and with the same bits; where reading B takes the time, it is read from `narrow`.
pub fn matmul_nt_narrow(
    c: &mut [f32],
    a: &[f32],
    b: &[f32],
    narrow: Option<&Narrow>,
    [m, n, k]: [usize; 3],
    output: Output,
) {
    match narrow {
        Some(narrow) if m <= few_rows::DOTS => {
            let words = narrow.words();
            assert_eq!(
                (c.len(), a.len(), 2 * words.len()),
                (m * n, m * k, n * k),
                "product [{m}, {n}, {k}]"
            );
            few_rows::product_nt(c, a, Weights::Narrow(words), [m, n, k], output);
        }
        _ => matmul_nt(c, a, b, [m, n, k], output),
    }
}

/// `C[m, n] = A[m, k] · B[k, n]`: the gradient of a linear layer's input.
pub fn matmul_nn(c: &mut [f32], a: &[f32], b: &[f32], [m, n, k]: [usize; 3], output: Output) {
    let b = Matrix::new(b, k, n);
    product(
        MatrixMut::new(c, m, n),
        Matrix::new(a, m, k),
        b,
        1.0,
        output,
    );
}

/// `C[m, n] = A[k, m]ᵀ · B[k, n]`: the gradient of a linear layer's weight.
pub fn matmul_tn(c: &mut [f32], a: &[f32], b: &[f32], [m, n, k]: [usize; 3], output: Output) {
    let a = Matrix::new(a, k, m).transposed();
    product(
        MatrixMut::new(c, m, n),
        a,
        Matrix::new(b, k, n),
        1.0,
        output,
    );
}
