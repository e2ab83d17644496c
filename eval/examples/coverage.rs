//! Prints `eval/COVERAGE.md`: `cargo run --release -p axmem-eval --example coverage > eval/COVERAGE.md`.

use axmem_eval::coverage::{Covered, Design};

const DRAWS: usize = 10_000;
const RESAMPLES: usize = 2_000;
/// (b + 1) / 200 reaches 0.05 exactly.
const PERMUTATIONS: usize = 199;
const CLUSTERS: [usize; 5] = [10, 25, 50, 100, 200];
const RATES: [f64; 6] = [0.0, 0.005, 0.05, 0.3, 0.67, 1.0];
/// Windows of a cluster and their correlation.
const WINDOWS: [(usize, f64); 3] = [(1, 0.0), (5, 0.0), (5, 0.3)];

const HEAD: &str = "\
# Coverage of the intervals, and rejections of the tests

Made by `cargo run --release -p axmem-eval --example coverage > eval/COVERAGE.md`. Seeds are fixed and draws use integers and
the four operations of arithmetic only, so every machine draws the same.

The intervals are at level 95 %. A cluster has one window, or five whose hits are correlated as those of a beta-binomial variable
are. 10,000 samples of each design; the standard error of a share of 95 % is 0.2 %. In percent:

- **Wilson**, **Clopper-Pearson**: one window a cluster.
- **Korn-Graubard**: several windows a cluster; first as published, then as axmem has it (what is changed and why is
  in the text of `axmem_eval::stats::korn_graubard`).
- **Bootstrap**: percentile, over clusters, 2,000 resamples. Where the clusters of a sample do not differ (the share in the column
  *flat*), Wilson's interval on their number stands in, as in the program. Where its coverage is outside 93 to 97 %, reports
  print it beside the interval and do not use the interval in their summary.

| clusters | windows | correlation | rate | Wilson | Clopper-Pearson | Korn-Graubard, published | Korn-Graubard | bootstrap | flat |
|---|---|---|---|---|---|---|---|---|---|";

const DIFFERENCES: &str = "
## Coverage of the intervals of differences

At level 95 %, 10,000 samples, 1,000 resamples. A cluster gains the share of its windows that is drawn at the rate, a cluster of the
control at the rate of the control, and nothing is lost. **Paired**: the change of the treated clusters, by the percentile bootstrap
over clusters, or by recovered variances where they do not differ. **Difference in differences**: their change minus that of as many
control clusters, resampled within both sides, or by recovered variances where one side does not differ.

| clusters | windows | correlation | rate | rate of the control | paired | difference in differences |
|---|---|---|---|---|---|---|";

const TESTS: &str = "
## Rejections where nothing has an effect

Tests at 5 %, in percent of 10,000 samples. A cluster changes in a share of its windows that is drawn at the rate, up or
down with equal chances; control has as many clusters. Sign flips and permutations: 199 of each sample, or all sign flips
where there are fewer. Cochran-Armitage: clusters that
changed, on four doses of a quarter of the clusters each. It and the mid-p of McNemar's test are not exact, may exceed 5 %, and describe:
no result of axmem is decided by them.

| clusters | windows | correlation | rate | McNemar | McNemar, mid-p | sign flips | permutation | Cochran-Armitage |
|---|---|---|---|---|---|---|---|---|";

fn percent(share: Option<f64>) -> String {
    share.map_or(String::new(), |share| format!("{:.2}", 100.0 * share))
}

fn place(design: &Design) -> String {
    format!(
        "| {} | {} | {} | {} |",
        design.clusters, design.windows, design.correlation, design.rate
    )
}

/// The lowest and highest of a method where `holds`.
fn range(
    all: &[(Design, Covered)],
    holds: impl Fn(&Design) -> bool,
    method: impl Fn(&Covered) -> Option<f64>,
) -> String {
    let shares = all.iter().filter(|(design, _)| holds(design));
    let shares: Vec<f64> = shares.filter_map(|(_, covered)| method(covered)).collect();
    let low = shares.iter().copied().fold(f64::INFINITY, f64::min);
    let high = shares.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    format!("{:.2} to {:.2}", 100.0 * low, 100.0 * high)
}

fn main() {
    println!("{HEAD}");
    let designs = |clusters: &[usize]| {
        let mut designs = Vec::new();
        for &clusters in clusters {
            for (windows, correlation) in WINDOWS {
                designs.extend(RATES.map(|rate| Design {
                    clusters,
                    windows,
                    correlation,
                    rate,
                }));
            }
        }
        designs
    };
    let mut all = Vec::new();
    for (seed, design) in designs(&CLUSTERS).into_iter().enumerate() {
        let covered = design.covered(DRAWS, RESAMPLES, seed as u64);
        println!(
            "{} {} | {} | {} | {} | {} | {} |",
            place(&design),
            percent(covered.wilson),
            percent(covered.clopper_pearson),
            percent(covered.korn_graubard_published),
            percent(covered.korn_graubard),
            percent(Some(covered.bootstrap)),
            percent(Some(covered.flat)),
        );
        all.push((design, covered));
    }
    let enough = |design: &Design| {
        let expected = design.clusters as f64 * design.rate.min(1.0 - design.rate);
        expected >= 5.0
    };
    let many = |design: &Design| design.clusters == 200 && design.rate > 0.01 && design.rate < 1.0;
    println!(
        "\nClopper-Pearson: {}. Korn-Graubard as published: {}, as axmem has it: {}. Wilson where at least 5 hits and 5 misses \
         are expected: {}. Bootstrap with 200 clusters and rates of 0.05, 0.3 and 0.67: {}.",
        range(&all, |_| true, |covered| covered.clopper_pearson),
        range(&all, |_| true, |covered| covered.korn_graubard_published),
        range(&all, |_| true, |covered| covered.korn_graubard),
        range(&all, enough, |covered| covered.wilson),
        range(&all, many, |covered| Some(covered.bootstrap)),
    );
    println!("{DIFFERENCES}");
    for (seed, design) in designs(&[25, 100, 200]).into_iter().enumerate() {
        if design.rate < 0.05 || design.rate >= 1.0 {
            continue;
        }
        for control in [0.0, 0.05] {
            let found = design.differenced(control, DRAWS, RESAMPLES / 2, 2000 + seed as u64);
            println!(
                "{} {control} | {} | {} |",
                place(&design),
                percent(Some(found.paired)),
                percent(Some(found.did)),
            );
        }
    }
    println!("{TESTS}");
    let mut highest = 0.0_f64;
    for (seed, design) in designs(&[25, 200]).into_iter().enumerate() {
        if design.rate <= 0.0 {
            continue;
        }
        let rejected = design.rejected(DRAWS, PERMUTATIONS, 1000 + seed as u64);
        println!(
            "{} {} | {} | {} | {} | {} |",
            place(&design),
            percent(rejected.mcnemar),
            percent(rejected.mid_p),
            percent(Some(rejected.sign_flip)),
            percent(Some(rejected.permutation)),
            percent(rejected.cochran_armitage),
        );
        let exact = rejected.mcnemar.unwrap_or(0.0);
        highest = highest
            .max(exact)
            .max(rejected.sign_flip)
            .max(rejected.permutation);
    }
    println!(
        "\nHighest of McNemar, sign flips and permutation: {:.2}.",
        100.0 * highest
    );
}
