//! Logistic regression on grouped counts by penalised maximum likelihood.

use nalgebra::{Cholesky, DMatrix, DVector, Dyn};

/// Newton steps, at most.
const STEPS: usize = 100;
/// Halvings of a step that does not raise the likelihood, at most.
const HALVINGS: usize = 30;
/// Share of the likelihood that is rounding.
const FLAT: f64 = 1e-12;
/// A fit has converged when its next step is below this share of the coefficients, plus itself.
const STEP: f64 = 1e-12;
/// So it has when no component of the score is above this share of the number of trials, plus itself.
const SCORE: f64 = 1e-13;

/// Equal trials: `hits` of `trials` under the covariates `x`.
#[derive(Debug, Clone, PartialEq)]
pub struct Cell {
    /// Covariates, the constant 1 among them.
    pub x: Vec<f64>,
    /// Trials; need not be whole.
    pub trials: f64,
    /// Hits among them.
    pub hits: f64,
}

/// Coefficients of `logit p = x · β` that maximise the likelihood times the root of the determinant of the Fisher
/// information (Firth 1993; Heinze and Schemper 2002), or `None` where the covariates of cells with trials are not
/// independent.
///
/// The penalty keeps the coefficients finite where hits and misses are separated, as a ladder's are when no small model has
/// a hit and every large one has, and removes the bias of order 1/n of maximum likelihood. The score of component r is
/// `Σ (hits - trials p + h (1/2 - p)) x_r` with h the leverage of the cell.
pub fn firth(cells: &[Cell]) -> Option<Vec<f64>> {
    let cells: Vec<&Cell> = cells.iter().filter(|cell| cell.trials > 0.0).collect();
    let columns = cells.first()?.x.len();
    let x = DMatrix::from_fn(cells.len(), columns, |row, column| cells[row].x[column]);
    let trials: f64 = cells.iter().map(|cell| cell.trials).sum();
    let mut now = State::new(&cells, &x, DVector::zeros(columns))?;
    for _ in 0..STEPS {
        let score = now.score(&cells, &x);
        if score.amax() <= SCORE * (1.0 + trials) {
            break;
        }
        let step = now.information.solve(&score);
        if step.amax() <= STEP * (1.0 + now.coefficients.amax()) {
            break;
        }
        // Half a step is tried where a whole one overshoots. Near the maximum the likelihood is flat to its last digits and
        // can't tell one step from another; the size of the step can.
        let flat = FLAT * (1.0 + now.likelihood.abs());
        let next = (0..HALVINGS).find_map(|halvings| {
            let shorter = &step * 0.5_f64.powi(halvings as i32);
            State::new(&cells, &x, &now.coefficients + shorter)
                .filter(|next| next.likelihood >= now.likelihood - flat)
        });
        match next {
            Some(next) => now = next,
            // No step raises it.
            None => break,
        }
    }
    Some(now.coefficients.iter().copied().collect())
}

/// The likelihood and its curvature at some coefficients.
struct State {
    coefficients: DVector<f64>,
    probabilities: DVector<f64>,
    /// `trials p (1 - p)` by cell.
    weights: DVector<f64>,
    /// `Xᵀ W X`, factored.
    information: Cholesky<f64, Dyn>,
    /// Penalised log-likelihood.
    likelihood: f64,
}

impl State {
    fn new(cells: &[&Cell], x: &DMatrix<f64>, coefficients: DVector<f64>) -> Option<Self> {
        let linear = x * &coefficients;
        let probabilities = linear.map(|eta| 1.0 / (1.0 + (-eta).exp()));
        let mut weights = probabilities.map(|p| p * (1.0 - p));
        let mut likelihood = 0.0;
        for (index, cell) in cells.iter().enumerate() {
            weights[index] *= cell.trials;
            let eta = linear[index];
            // ln(1 + e^eta) without overflow.
            let partition = eta.max(0.0) + (-eta.abs()).exp().ln_1p();
            likelihood += cell.hits * eta - cell.trials * partition;
        }
        let weighted = DMatrix::from_fn(x.nrows(), x.ncols(), |row, column| {
            weights[row] * x[(row, column)]
        });
        let information = Cholesky::new(x.tr_mul(&weighted))?;
        let diagonal = information.l_dirty().diagonal();
        // Dependent columns leave a pivot of rounding errors.
        if diagonal.min() < 1e-7 * diagonal.max() {
            return None;
        }
        // Half the logarithm of the determinant is that of the product of the factor's diagonal.
        likelihood += diagonal.iter().map(|pivot| pivot.ln()).sum::<f64>();
        Some(Self {
            coefficients,
            probabilities,
            weights,
            information,
            likelihood,
        })
    }

    fn score(&self, cells: &[&Cell], x: &DMatrix<f64>) -> DVector<f64> {
        let spread = self.information.solve(&x.transpose()); // I⁻¹ Xᵀ
        let mut residuals = DVector::zeros(cells.len());
        for (index, cell) in cells.iter().enumerate() {
            let p = self.probabilities[index];
            let leverage =
                self.weights[index] * x.row(index).dot(&spread.column(index).transpose());
            residuals[index] = cell.hits - cell.trials * p + leverage * (0.5 - p);
        }
        x.tr_mul(&residuals)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(x: &[f64], hits: f64, trials: f64) -> Cell {
        Cell {
            x: x.to_vec(),
            trials,
            hits,
        }
    }

    /// With a constant alone the penalty adds half a hit and half a miss (Firth 1993, section 3.1).
    #[test]
    fn a_constant_alone_adds_half_a_hit_and_half_a_miss() {
        for (hits, trials) in [(0.0, 24.0), (24.0, 24.0), (7.0, 24.0)] {
            let fitted = firth(&[cell(&[1.0], hits, trials)]).expect("a fit")[0];
            let expected = ((hits + 0.5) / (trials - hits + 0.5)).ln();
            assert!((fitted - expected).abs() < 1e-8, "{fitted} {expected}");
        }
    }

    #[test]
    fn cells_may_be_split_and_merged() {
        let whole = [cell(&[1.0, 0.0], 3.0, 20.0), cell(&[1.0, 1.0], 9.0, 20.0)];
        let split: Vec<Cell> = (0..20)
            .flat_map(|trial| {
                let hit = |hits: i32| f64::from(u8::from(trial < hits));
                [
                    cell(&[1.0, 0.0], hit(3), 1.0),
                    cell(&[1.0, 1.0], hit(9), 1.0),
                ]
            })
            .collect();
        let (whole, split) = (firth(&whole).expect("a fit"), firth(&split).expect("a fit"));
        assert!(whole.iter().zip(&split).all(|(a, b)| (a - b).abs() < 1e-8));
    }

    #[test]
    fn dependent_covariates_have_no_fit() {
        assert_eq!(firth(&[]), None);
        assert_eq!(firth(&[cell(&[1.0, 2.0], 3.0, 20.0)]), None);
        let dependent = [
            cell(&[1.0, 2.0, 4.0], 3.0, 20.0),
            cell(&[1.0, 3.0, 6.0], 9.0, 20.0),
        ];
        assert_eq!(firth(&dependent), None);
    }
}
