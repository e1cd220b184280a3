//! Matrices in device memory, stored row by row.

use memtrack::{AllocationError, Buffer, CachingAllocator};

/// Rows of numbers in a buffer of the device. Freed when dropped.
#[derive(Debug)]
pub(crate) struct Matrix {
    pub(crate) values: Buffer<f32>,
    pub(crate) rows: usize,
    pub(crate) columns: usize,
}

impl Matrix {
    /// Takes memory without writing to it: for results, which a kernel writes whole.
    pub(crate) fn uninit(allocator: &CachingAllocator, rows: usize, columns: usize) -> Result<Self, AllocationError> {
        Ok(Self { values: Buffer::uninit(allocator, rows * columns)?, rows, columns })
    }

    /// All zeros.
    pub(crate) fn zeros(allocator: &CachingAllocator, rows: usize, columns: usize) -> Result<Self, AllocationError> {
        Ok(Self { values: Buffer::zeros(allocator, rows * columns)?, rows, columns })
    }

    /// Copies rows of `columns` values each from host memory.
    pub(crate) fn from_rows(
        allocator: &CachingAllocator,
        values: &[f32],
        columns: usize,
    ) -> Result<Self, AllocationError> {
        Ok(Self { values: Buffer::from_slice(allocator, values)?, rows: values.len() / columns, columns })
    }

    /// Rows and columns.
    pub(crate) fn shape(&self) -> (usize, usize) {
        (self.rows, self.columns)
    }

    /// This matrix as a factor of a product.
    pub(crate) fn plain(&self) -> Factor<'_> {
        Factor { matrix: self, transposed: false }
    }

    /// This matrix with rows and columns exchanged, as a factor of a product. Nothing is moved.
    pub(crate) fn transposed(&self) -> Factor<'_> {
        Factor { matrix: self, transposed: true }
    }
}

/// A matrix as it enters a product: as stored, or with rows and columns exchanged.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Factor<'a> {
    pub(crate) matrix: &'a Matrix,
    pub(crate) transposed: bool,
}

impl Factor<'_> {
    /// Rows and columns, after the exchange.
    pub(crate) fn shape(&self) -> (usize, usize) {
        let (rows, columns) = self.matrix.shape();
        if self.transposed { (columns, rows) } else { (rows, columns) }
    }
}
