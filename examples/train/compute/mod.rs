//! The arithmetic of training: what is computed (`Compute`), and by whom (`Kernels`: `cpu` or `cuda`, which needs
//! `libraries`).
//!
//! [`Compute`] takes the memory for results and checks shapes, so that the kernels below may trust them. Nothing about
//! networks or training belongs here.

#[cfg(test)]
mod agreement;
mod cpu;
mod cuda;
mod libraries;

use memtrack::{Buffer, CachingAllocator};

pub(crate) use cpu::CpuKernels;
pub(crate) use cuda::CudaKernels;
pub(crate) use libraries::grouped;

use crate::error::TrainError;
use crate::matrix::{Factor, Matrix};

/// Adam's constants for one step.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AdamStep {
    /// How slowly the first moment forgets.
    pub(crate) beta1: f32,
    /// How slowly the second moment forgets.
    pub(crate) beta2: f32,
    /// Keeps the division finite.
    pub(crate) epsilon: f32,
    /// `1 - beta1^step`: what the first moment still misses because it started at zero.
    pub(crate) correction1: f32,
    /// `1 - beta2^step`.
    pub(crate) correction2: f32,
}

/// The loops, for one kind of device. All shapes have been checked, results are written whole.
pub(crate) trait Kernels {
    /// `product = left · right`
    fn matmul(&self, left: Factor<'_>, right: Factor<'_>, product: &mut Matrix) -> Result<(), TrainError>;
    /// Adds the one row of `row` to every row of `matrix`.
    fn add_row(&self, matrix: &mut Matrix, row: &Matrix) -> Result<(), TrainError>;
    /// Negative values become zero.
    fn relu(&self, matrix: &mut Matrix) -> Result<(), TrainError>;
    /// Zeroes `gradient` where [`relu`](Self::relu) had zeroed `output`.
    fn relu_backward(&self, gradient: &mut Matrix, output: &Matrix) -> Result<(), TrainError>;
    /// Each row's probabilities, and minus the logarithm of the one that the row's label has.
    fn softmax_cross_entropy(
        &self,
        logits: &Matrix,
        labels: &Buffer<u32>,
        probabilities: &mut Matrix,
        losses: &mut Matrix,
    ) -> Result<(), TrainError>;
    /// Turns probabilities into the gradient of the mean loss by the logits, in place.
    fn softmax_cross_entropy_backward(
        &self,
        probabilities: &mut Matrix,
        labels: &Buffer<u32>,
    ) -> Result<(), TrainError>;
    /// The sum of each column, as one row.
    fn column_sums(&self, matrix: &Matrix, sums: &mut Matrix) -> Result<(), TrainError>;
    /// Moves both moments by the gradient and writes Adam's direction, a temporary as large as the parameter.
    fn adam_direction(
        &self,
        step: AdamStep,
        gradient: &Matrix,
        first_moment: &mut Matrix,
        second_moment: &mut Matrix,
        direction: &mut Matrix,
    ) -> Result<(), TrainError>;
    /// `target += scale * source`
    fn add_scaled(&self, target: &mut Matrix, scale: f32, source: &Matrix) -> Result<(), TrainError>;
    /// The column of each row's largest value, the first of equal ones.
    fn largest_columns(&self, matrix: &Matrix, columns: &mut Buffer<u32>) -> Result<(), TrainError>;
}

/// Arithmetic on matrices of one allocator's device. Its methods panic when shapes do not fit: that is a bug of the
/// program, whatever the user typed.
pub(crate) struct Compute {
    allocator: CachingAllocator,
    kernels: Box<dyn Kernels>,
}

impl Compute {
    /// `kernels` must be those of `allocator`'s device; others fail at the first use.
    pub(crate) fn new(allocator: CachingAllocator, kernels: Box<dyn Kernels>) -> Self {
        Self { allocator, kernels }
    }

    /// Where all memory comes from.
    pub(crate) fn allocator(&self) -> &CachingAllocator {
        &self.allocator
    }

    /// `left · right`
    pub(crate) fn matmul(&self, left: Factor<'_>, right: Factor<'_>) -> Result<Matrix, TrainError> {
        let ((rows, inner), (inner_right, columns)) = (left.shape(), right.shape());
        assert_eq!(inner, inner_right, "inner sizes of a product");
        let mut product = Matrix::uninit(&self.allocator, rows, columns)?;
        self.kernels.matmul(left, right, &mut product)?;
        Ok(product)
    }

    /// Adds the one row of `row` to every row of `matrix`.
    pub(crate) fn add_row(&self, matrix: &mut Matrix, row: &Matrix) -> Result<(), TrainError> {
        assert_eq!(row.shape(), (1, matrix.columns));
        self.kernels.add_row(matrix, row)
    }

    /// Negative values become zero.
    pub(crate) fn relu(&self, matrix: &mut Matrix) -> Result<(), TrainError> {
        self.kernels.relu(matrix)
    }

    /// Zeroes `gradient` where [`relu`](Self::relu) had zeroed `output`.
    pub(crate) fn relu_backward(&self, gradient: &mut Matrix, output: &Matrix) -> Result<(), TrainError> {
        assert_eq!(gradient.shape(), output.shape());
        self.kernels.relu_backward(gradient, output)
    }

    /// Each row's probabilities, and the mean loss. The losses of single rows are a temporary.
    pub(crate) fn softmax_cross_entropy(
        &self,
        logits: &Matrix,
        labels: &Buffer<u32>,
    ) -> Result<(Matrix, f64), TrainError> {
        assert_eq!(labels.len(), logits.rows, "one label a row");
        let mut probabilities = Matrix::uninit(&self.allocator, logits.rows, logits.columns)?;
        let mut losses = Matrix::uninit(&self.allocator, logits.rows, 1)?;
        self.kernels.softmax_cross_entropy(logits, labels, &mut probabilities, &mut losses)?;
        let losses = losses.values.to_vec()?;
        let mean = losses.iter().map(|&loss| f64::from(loss)).sum::<f64>() / losses.len() as f64;
        Ok((probabilities, mean))
    }

    /// The gradient of the mean loss by the logits, in the memory of the probabilities.
    pub(crate) fn softmax_cross_entropy_backward(
        &self,
        mut probabilities: Matrix,
        labels: &Buffer<u32>,
    ) -> Result<Matrix, TrainError> {
        assert_eq!(labels.len(), probabilities.rows, "one label a row");
        self.kernels.softmax_cross_entropy_backward(&mut probabilities, labels)?;
        Ok(probabilities)
    }

    /// The sum of each column, as one row.
    pub(crate) fn column_sums(&self, matrix: &Matrix) -> Result<Matrix, TrainError> {
        let mut sums = Matrix::uninit(&self.allocator, 1, matrix.columns)?;
        self.kernels.column_sums(matrix, &mut sums)?;
        Ok(sums)
    }

    /// Moves both moments by the gradient and the parameter by Adam's direction, which is a temporary.
    pub(crate) fn adam(
        &self,
        step: AdamStep,
        learning_rate: f32,
        parameter: &mut Matrix,
        gradient: &Matrix,
        first_moment: &mut Matrix,
        second_moment: &mut Matrix,
    ) -> Result<(), TrainError> {
        let shape = parameter.shape();
        assert_eq!([gradient.shape(), first_moment.shape(), second_moment.shape()], [shape; 3]);
        let mut direction = Matrix::uninit(&self.allocator, shape.0, shape.1)?;
        self.kernels.adam_direction(step, gradient, first_moment, second_moment, &mut direction)?;
        self.kernels.add_scaled(parameter, -learning_rate, &direction)
    }

    /// The column of each row's largest value: the class that logits vote for.
    pub(crate) fn largest_columns(&self, matrix: &Matrix) -> Result<Vec<u32>, TrainError> {
        let mut columns = Buffer::uninit(&self.allocator, matrix.rows)?;
        self.kernels.largest_columns(matrix, &mut columns)?;
        Ok(columns.to_vec()?)
    }
}
