//! p-values of several tests, adjusted for their number.

/// Holm's adjusted p-values (Holm 1979): they control the chance of any false finding.
pub fn holm(p: &[f64]) -> Vec<f64> {
    let order = ascending(p);
    let mut adjusted = vec![0.0; p.len()];
    let mut floor = 0.0_f64;
    for (place, &index) in order.iter().enumerate() {
        floor = floor.max((p[index] * (p.len() - place) as f64).min(1.0));
        adjusted[index] = floor;
    }
    adjusted
}

/// Benjamini and Hochberg's adjusted p-values (1995): they control the share of false findings.
pub fn benjamini_hochberg(p: &[f64]) -> Vec<f64> {
    let order = ascending(p);
    let mut adjusted = vec![0.0; p.len()];
    let mut ceiling = 1.0_f64;
    for (place, &index) in order.iter().enumerate().rev() {
        // The ratio first: at 1 it must leave p as it is.
        ceiling = ceiling.min(p[index] * (p.len() as f64 / (place + 1) as f64));
        adjusted[index] = ceiling;
    }
    adjusted
}

fn ascending(p: &[f64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|&a, &b| p[a].total_cmp(&p[b]));
    order
}
