//! The loops on host memory, one thread.

use memtrack::Buffer;

use super::{AdamStep, Kernels};
use crate::error::TrainError;
use crate::matrix::{Factor, Matrix};

/// Kernels for the host device.
#[derive(Debug)]
pub(crate) struct CpuKernels;

impl Kernels for CpuKernels {
    fn matmul(&self, left: Factor<'_>, right: Factor<'_>, product: &mut Matrix) -> Result<(), TrainError> {
        let ((rows, inner), (_, columns)) = (left.shape(), right.shape());
        let (left_row, left_column) = strides(left);
        let (right_row, right_column) = strides(right);
        let left = left.matrix.values.as_slice()?;
        let right = right.matrix.values.as_slice()?;
        let product = product.values.as_mut_slice()?;
        assert!(left.len() == rows * inner && right.len() == inner * columns && product.len() == rows * columns);
        // SAFETY: the assertion above: with these sizes and strides every element read or written lies in its slice.
        // The slices do not overlap, since one of them is borrowed mutably.
        unsafe {
            matrixmultiply::sgemm(
                rows,
                inner,
                columns,
                1.0,
                left.as_ptr(),
                left_row,
                left_column,
                right.as_ptr(),
                right_row,
                right_column,
                0.0,
                product.as_mut_ptr(),
                columns as isize,
                1,
            );
        }
        Ok(())
    }

    fn add_row(&self, matrix: &mut Matrix, row: &Matrix) -> Result<(), TrainError> {
        let row = row.values.as_slice()?;
        for target in matrix.values.as_mut_slice()?.chunks_exact_mut(row.len()) {
            for (value, addend) in target.iter_mut().zip(row) {
                *value += addend;
            }
        }
        Ok(())
    }

    fn relu(&self, matrix: &mut Matrix) -> Result<(), TrainError> {
        for value in matrix.values.as_mut_slice()? {
            *value = value.max(0.0);
        }
        Ok(())
    }

    fn relu_backward(&self, gradient: &mut Matrix, output: &Matrix) -> Result<(), TrainError> {
        for (gradient, &output) in gradient.values.as_mut_slice()?.iter_mut().zip(output.values.as_slice()?) {
            if output <= 0.0 {
                *gradient = 0.0;
            }
        }
        Ok(())
    }

    fn softmax_cross_entropy(
        &self,
        logits: &Matrix,
        labels: &Buffer<u32>,
        probabilities: &mut Matrix,
        losses: &mut Matrix,
    ) -> Result<(), TrainError> {
        let columns = logits.columns;
        let logits = logits.values.as_slice()?.chunks_exact(columns);
        let probabilities = probabilities.values.as_mut_slice()?.chunks_exact_mut(columns);
        let labels = labels.as_slice()?;
        let losses = losses.values.as_mut_slice()?;
        for (((logits, probabilities), &label), loss) in logits.zip(probabilities).zip(labels).zip(losses) {
            // Less the largest, so that no exponential overflows.
            let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let mut sum = 0.0;
            for (probability, logit) in probabilities.iter_mut().zip(logits) {
                *probability = (logit - largest).exp();
                sum += *probability;
            }
            for probability in probabilities {
                *probability /= sum;
            }
            *loss = sum.ln() - (logits[label as usize] - largest);
        }
        Ok(())
    }

    fn softmax_cross_entropy_backward(
        &self,
        probabilities: &mut Matrix,
        labels: &Buffer<u32>,
    ) -> Result<(), TrainError> {
        let Matrix { values, rows, columns } = probabilities;
        let share = 1.0 / *rows as f32;
        for (row, &label) in values.as_mut_slice()?.chunks_exact_mut(*columns).zip(labels.as_slice()?) {
            row[label as usize] -= 1.0;
            for value in row {
                *value *= share;
            }
        }
        Ok(())
    }

    fn column_sums(&self, matrix: &Matrix, sums: &mut Matrix) -> Result<(), TrainError> {
        let sums = sums.values.as_mut_slice()?;
        sums.fill(0.0);
        for row in matrix.values.as_slice()?.chunks_exact(sums.len()) {
            for (sum, value) in sums.iter_mut().zip(row) {
                *sum += value;
            }
        }
        Ok(())
    }

    fn adam_direction(
        &self,
        step: AdamStep,
        gradient: &Matrix,
        first_moment: &mut Matrix,
        second_moment: &mut Matrix,
        direction: &mut Matrix,
    ) -> Result<(), TrainError> {
        let gradient = gradient.values.as_slice()?;
        let first = first_moment.values.as_mut_slice()?;
        let second = second_moment.values.as_mut_slice()?;
        let direction = direction.values.as_mut_slice()?;
        for (((&gradient, first), second), direction) in gradient.iter().zip(first).zip(second).zip(direction) {
            *first = step.beta1 * *first + (1.0 - step.beta1) * gradient;
            *second = step.beta2 * *second + (1.0 - step.beta2) * gradient * gradient;
            *direction = (*first / step.correction1) / ((*second / step.correction2).sqrt() + step.epsilon);
        }
        Ok(())
    }

    fn add_scaled(&self, target: &mut Matrix, scale: f32, source: &Matrix) -> Result<(), TrainError> {
        for (target, source) in target.values.as_mut_slice()?.iter_mut().zip(source.values.as_slice()?) {
            *target += scale * source;
        }
        Ok(())
    }

    fn largest_columns(&self, matrix: &Matrix, columns: &mut Buffer<u32>) -> Result<(), TrainError> {
        let rows = matrix.values.as_slice()?.chunks_exact(matrix.columns);
        for (row, largest) in rows.zip(columns.as_mut_slice()?) {
            let mut best = 0;
            for (column, value) in row.iter().enumerate() {
                if *value > row[best] {
                    best = column;
                }
            }
            *largest = best as u32;
        }
        Ok(())
    }
}

/// How far apart neighbours are in a factor: down a column, and along a row.
fn strides(factor: Factor<'_>) -> (isize, isize) {
    let columns = factor.matrix.columns as isize;
    if factor.transposed { (1, columns) } else { (columns, 1) }
}
