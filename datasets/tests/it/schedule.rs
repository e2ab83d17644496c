//! The schedule: exact exposures, no document twice in a batch, a function of the seed alone.

use std::collections::{BTreeMap, BTreeSet};

use axmem_datasets::Kind;
use axmem_datasets::bucket::Assignment;
use axmem_datasets::schedule::{Placement, ScheduleSettings, Slot, schedule};
use proptest::prelude::*;

fn assignments(levels: &[u32]) -> Vec<Assignment> {
    levels
        .iter()
        .enumerate()
        .map(|(number, &epochs)| Assignment {
            trial: 0,
            group: 0,
            epochs,
            document: format!("d{number}"),
            cluster: format!("d{number}"),
        })
        .collect()
}

fn settings(batch: usize) -> ScheduleSettings {
    ScheduleSettings {
        batch,
        first_step: 1,
        mix: 0,
        placement: Placement::Spread,
        seed: 1,
        presentations_factor: 1.0,
    }
}

/// Each document's presentations, after a check that they are numbered in time and that no batch
/// holds a document twice.
fn presentations(slots: &[Slot]) -> BTreeMap<String, u32> {
    let mut seen: BTreeMap<String, u32> = BTreeMap::new();
    let mut batches = BTreeSet::new();
    for slot in slots {
        if let Some(document) = &slot.document {
            assert!(
                batches.insert((slot.step, document.clone())),
                "{document} twice"
            );
            let count = seen.entry(document.clone()).or_default();
            *count += 1;
            assert_eq!(slot.presentation, *count);
        }
    }
    seen
}

/// Whether documents of these levels fit batches of these sizes without a repeat (Gale-Ryser).
fn fits(levels: &[u32], sizes: &[usize]) -> bool {
    let mut levels: Vec<usize> = levels.iter().map(|&level| level as usize).collect();
    levels.sort_unstable_by(|left, right| right.cmp(left));
    (1..=levels.len()).all(|most| {
        let due: usize = levels[..most].iter().sum();
        due <= sizes.iter().map(|&size| size.min(most)).sum()
    })
}

fn placement() -> impl Strategy<Value = Placement> {
    prop_oneof![
        Just(Placement::Spread),
        Just(Placement::First),
        Just(Placement::Last)
    ]
}

proptest! {
    /// The schedule exists exactly when it can, however tight.
    #[test]
    fn exposures_are_exact_whenever_a_schedule_exists(
        levels in prop::collection::vec(0_u32..9, 1..12),
        batch in 1_usize..9,
        mix in 0_u32..3,
        placement in placement(),
        seed: u64,
    ) {
        let settings = ScheduleSettings { mix, placement, seed, ..settings(batch) };
        let treated: u32 = levels.iter().sum();
        let rows = (treated * (mix + 1)) as usize;
        let background = (treated * mix) as usize;
        let stride = mix as usize + 1;
        let sizes: Vec<usize> = (0..rows.div_ceil(batch))
            .map(|step| {
                (step * batch..((step + 1) * batch).min(rows))
                    .filter(|place| place % stride == 0)
                    .count()
            })
            .collect();
        let slots = schedule(&assignments(&levels), background, &settings, 0);
        prop_assert_eq!(slots.is_ok(), fits(&levels, &sizes));
        if let Ok(slots) = slots {
            let seen = presentations(&slots);
            for (number, &level) in levels.iter().enumerate() {
                prop_assert_eq!(seen.get(&format!("d{number}")).copied().unwrap_or(0), level);
            }
            let used: Vec<u32> = slots.iter().filter_map(|slot| slot.background).collect();
            prop_assert_eq!(used, (0..background as u32).collect::<Vec<_>>());
            for (place, slot) in slots.iter().enumerate() {
                prop_assert_eq!((slot.step as usize - 1) * batch + slot.row as usize, place);
            }
        }
    }

    /// Every batch holds the same rows whatever the order of the assignments.
    #[test]
    fn d01_the_order_is_a_function_of_seed_and_trial(
        shuffled in Just(assignments(&[0, 1, 1, 4, 4, 6, 6, 6])).prop_shuffle(),
        seed: u64,
        trial in 0_u32..3,
    ) {
        let settings = ScheduleSettings { seed, ..settings(4) };
        let in_trial = |rows: &[Assignment]| -> Vec<Assignment> {
            rows.iter().cloned().map(|row| Assignment { trial, ..row }).collect()
        };
        let whole = schedule(&in_trial(&shuffled), 0, &settings, trial).unwrap();
        let again =
            schedule(&in_trial(&assignments(&[0, 1, 1, 4, 4, 6, 6, 6])), 0, &settings, trial);
        prop_assert_eq!(&whole, &again.unwrap());
        let other = ScheduleSettings { seed: seed ^ 1, ..settings };
        let other = schedule(&in_trial(&shuffled), 0, &other, trial).unwrap();
        prop_assert_ne!(whole, other);
    }
}

#[test]
fn trials_have_positions_of_their_own() {
    let levels: Vec<u32> = (0..12).map(|number| [0, 3, 6][number % 3]).collect();
    let names = |trial| -> Vec<_> {
        let rows: Vec<_> = assignments(&levels)
            .into_iter()
            .map(|row| Assignment { trial, ..row })
            .collect();
        let slots = schedule(&rows, 0, &settings(4), trial).unwrap();
        slots.into_iter().map(|slot| slot.document).collect()
    };
    assert_ne!(names(0), names(1));
}

#[test]
fn steps_are_counted_on_from_the_warm_up() {
    let after = ScheduleSettings {
        first_step: 51,
        ..settings(2)
    };
    let rows = assignments(&[0, 2, 3, 3]);
    let counted_on = schedule(&rows, 0, &after, 0).unwrap();
    let mut from_one = schedule(&rows, 0, &settings(2), 0).unwrap();
    assert_eq!((from_one[0].step, from_one[7].step), (1, 4));
    for slot in &mut from_one {
        slot.step += 50;
    }
    assert_eq!(counted_on, from_one);
}

#[test]
fn d06_two_hundred_documents_have_exactly_six_exposures_each() {
    let slots = schedule(&assignments(&[6; 200]), 0, &settings(128), 0).unwrap();
    let seen = presentations(&slots);
    assert_eq!(seen.len(), 200);
    assert!(seen.values().all(|&count| count == 6));
    // 1,200 rows in batches of 128: the last one holds 48.
    assert_eq!(slots.last().unwrap().step, 10);
    assert_eq!(slots.iter().filter(|slot| slot.step == 10).count(), 48);
}

#[test]
fn spread_puts_one_presentation_into_each_segment() {
    let levels = [vec![4; 40], vec![8; 40]].concat();
    let slots = schedule(&assignments(&levels), 0, &settings(1), 0).unwrap();
    for number in 0..40 {
        let places: Vec<usize> = slots
            .iter()
            .enumerate()
            .filter(|(_, slot)| slot.document.as_deref() == Some(&format!("d{number}")))
            .map(|(place, _)| place)
            .collect();
        // Segments are of positions; in rows they shift by the chance of the other documents.
        for (segment, &place) in places.iter().enumerate() {
            let share = place as f64 / slots.len() as f64 * 4.0;
            assert!(
                share > segment as f64 - 0.2 && share < segment as f64 + 1.2,
                "{share}"
            );
        }
    }
}

#[test]
fn first_and_last_fill_the_passes_they_are_named_for() {
    let levels = [vec![2; 20], vec![8; 20]].concat();
    for (placement, range) in [(Placement::First, 0.0..0.45), (Placement::Last, 0.55..1.0)] {
        let settings = ScheduleSettings {
            placement,
            ..settings(10)
        };
        let slots = schedule(&assignments(&levels), 0, &settings, 0).unwrap();
        for (place, slot) in slots.iter().enumerate() {
            let number: usize = slot.document.as_ref().unwrap()[1..].parse().unwrap();
            if number < 20 {
                let share = place as f64 / slots.len() as f64;
                assert!(range.contains(&share), "{placement:?} {share}");
            }
        }
    }
}

#[test]
fn a_factor_multiplies_the_presentations() {
    let settings = ScheduleSettings {
        presentations_factor: 1.5,
        ..settings(2)
    };
    let slots = schedule(&assignments(&[0, 1, 4, 6, 6]), 0, &settings, 0).unwrap();
    let seen = presentations(&slots);
    assert_eq!(seen.into_values().collect::<Vec<_>>(), [2, 6, 9, 9]);
}

#[test]
fn impossible_schedules_name_the_numbers() {
    let usage = |levels: &[u32], background: usize, settings: ScheduleSettings, expected: &str| {
        let error = schedule(&assignments(levels), background, &settings, 0).unwrap_err();
        assert_eq!(error.kind(), Kind::Usage);
        assert!(error.to_string().contains(expected), "{error}");
    };
    usage(
        &[9, 1],
        0,
        settings(4),
        "document d0 has 9 presentations, but only 3 batches",
    );
    usage(
        &[3, 3, 3],
        0,
        settings(4),
        "3 documents are due in each of the 3 batches, and the last batch holds 1",
    );
    usage(
        &[1, 2],
        5,
        ScheduleSettings {
            mix: 2,
            ..settings(4)
        },
        "needs 6 background rows after the warm-up, 5 are there",
    );
    usage(&[1], 0, settings(0), "train.batch must be at least 1");
    usage(
        &[1],
        0,
        ScheduleSettings {
            presentations_factor: f64::NAN,
            ..settings(1)
        },
        "must be at least 1",
    );
    usage(
        &[u32::MAX, u32::MAX],
        0,
        settings(1),
        "more than 4294967295 rows",
    );
}
