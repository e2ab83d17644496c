//! The power planner against the tests that it plans.

use axmem_eval::stats::{Comparison, Planner};

fn planner(comparison: Comparison, discordance: f64, alpha: f64) -> Planner {
    Planner {
        comparison,
        discordance,
        alpha,
        power: 0.8,
    }
}

#[test]
fn six_gains_are_needed_where_nothing_is_lost() {
    // scipy.stats.binom.sf(5, 24, 0.3094) = 0.80: at least six of 24.
    let paired = planner(Comparison::Paired, 0.0, 0.05);
    assert!(paired.smallest_effect(24).unwrap() >= 0.3094);
    assert_eq!(paired.smallest_effect(5), None);
    assert_eq!(paired.smallest_effect(0), None);
    // Connor's formula without continuity correction, 40 % discordant, 20 % effect:
    // (1.959964 √0.4 + 0.841621 √0.36)² / 0.04 = 76.
    let connor = planner(Comparison::Paired, 0.2, 0.05)
        .clusters(0.2)
        .unwrap();
    assert!((76..=90).contains(&connor), "{connor}");
}

#[test]
fn an_effect_and_its_clusters_are_inverse() {
    for comparison in [Comparison::Paired, Comparison::Difference] {
        for (discordance, alpha) in [(0.0, 0.05), (0.02, 0.0125), (0.2, 0.05)] {
            let planner = planner(comparison, discordance, alpha);
            let mut before = u64::MAX;
            for effect in [0.01, 0.05, 0.2, 0.5] {
                let clusters = planner.clusters(effect).unwrap();
                assert!(planner.power_at(clusters, effect) >= 0.8 && clusters < before);
                assert!(planner.smallest_effect(clusters).unwrap() <= effect + 1e-6);
                before = clusters;
            }
            assert_eq!(planner.clusters(1.0).is_some(), discordance == 0.0);
            assert_eq!(planner.clusters(0.0), None);
        }
    }
}

#[test]
fn simulated_tests_find_what_the_closed_form_says() {
    let mut worst = 0.0_f64;
    for comparison in [Comparison::Paired, Comparison::Difference] {
        for discordance in [0.0, 0.02, 0.1, 0.3] {
            for clusters in [24, 72, 200] {
                let planner = planner(comparison, discordance, 0.05);
                let effect = planner.smallest_effect(clusters).unwrap();
                let found = planner.simulate(clusters, effect, 1000, 199, clusters);
                println!("{comparison:?} {discordance} {clusters}: {effect:.4} {found:.3}");
                worst = worst.max((found - 0.8).abs());
                // Never promises much more than the test gives; cautious where few clusters change.
                assert!(
                    found > 0.74,
                    "{comparison:?} {discordance} {clusters}: {found}"
                );
                assert!(
                    found < 0.9,
                    "{comparison:?} {discordance} {clusters}: {found}"
                );
            }
        }
    }
    println!("largest distance from 0.8: {worst:.3}");
}

#[test]
fn a_simulation_is_a_function_of_its_seed() {
    let planner = planner(Comparison::Difference, 0.02, 0.05);
    let simulate = |seed: u64| planner.simulate(24, 0.3, 200, 99, seed);
    assert_eq!(simulate(3).to_bits(), simulate(3).to_bits());
}
