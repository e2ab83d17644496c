//! The scorer and greedy decoding on a model whose logits are known.

use axmem_eval::{
    Kind, LanguageModel as _, Prefix, ScoreSettings, cross_check_sample, greedy, measure_tolerance,
    score,
};

use super::toy::{Toy, one_hot, probe, settings};

#[test]
fn g05_an_end_of_text_id_in_prefix_or_suffix_is_an_ordinary_id() {
    let end_of_text = 1;
    let text = [5, end_of_text, 7, 8, 3, 6];
    let toy = Toy::reciting(9, &[&text]);
    assert_eq!(greedy(&toy, &[&text[..2]], 4).unwrap(), [[7, 8, 3, 6]]);
    // Generated, it does not stop the decoding.
    assert_eq!(
        greedy(&toy, &[&text[..1]], 5).unwrap(),
        [[end_of_text, 7, 8, 3, 6]]
    );
    let scores = score(&toy, &[probe("a", text)], &settings(&[5])).unwrap();
    assert!(scores[0].exact[0]);
}

#[test]
fn g11_a_padded_vocabulary_row_is_never_chosen() {
    // Rows 3 and 4 of the head are padding; all real logits are negative.
    let row = vec![-3.0, -1.0, -2.0, f32::NEG_INFINITY, f32::NEG_INFINITY];
    let toy = Toy::new(5, [(vec![0], row.clone()), (vec![1], row)]);
    assert_eq!(greedy(&toy, &[&[0]], 3).unwrap(), [[1, 1, 1]]);

    let scores = score(&toy, &[probe("a", [0, 1])], &settings(&[1])).unwrap();
    let mass = (-3.0_f64).exp() + (-1.0_f64).exp() + (-2.0_f64).exp();
    assert!((scores[0].log_probability[0] - (-1.0 - mass.ln())).abs() < 1e-6);
}

#[test]
fn g12_the_lowest_id_wins_a_tie_and_a_margin_of_zero_follows_it() {
    let tie = vec![0.0, 2.0, 2.0, 1.0];
    let toy = Toy::new(
        4,
        [
            (vec![0], tie.clone()),
            (vec![1], tie.clone()),
            (vec![2], tie),
        ],
    );
    assert_eq!(greedy(&toy, &[&[0]], 2).unwrap(), [[1, 1]]);
    let probes = [probe("lowest", [0, 1]), probe("other", [0, 2])];
    let scores = score(&toy, &probes, &settings(&[1])).unwrap();
    assert!(scores[0].exact[0] && !scores[1].exact[0]);
    for one in &scores {
        assert!(one.margin[0].abs() < f32::EPSILON && one.fragile[0]);
        assert_eq!(one.predicted, [1]);
    }
}

#[test]
fn m01_the_loss_is_that_of_the_last_s_positions_exactly() {
    // The id at position i has probability exp(-i / 100), after a context that is told by its length.
    let length = 100_usize;
    let ids: Vec<u32> = (0..length as u32).map(|i| u32::from(i % 3 == 0)).collect();
    let rows = (1..length).map(|i| {
        let p = (-(i as f64) / 100.0).exp();
        let logit = (p / (1.0 - p)).ln() as f32;
        (ids[..i].to_vec(), one_hot(2, ids[i], logit))
    });
    let toy = Toy::new(2, rows);
    let scores = score(&toy, &[probe("a", ids.clone())], &settings(&[50, 10])).unwrap();
    let expected = |from: usize| -(from..length).map(|i| i as f64 / 100.0).sum::<f64>();
    for (index, from) in [(0, 50), (1, 90)] {
        let log_probability = scores[0].log_probability[index];
        assert!(
            (log_probability - expected(from)).abs() < 1e-5,
            "{log_probability}"
        );
        assert!((scores[0].p_z[index] - log_probability.exp()).abs() < 1e-18);
    }
    assert_eq!(scores[0].target, ids[50..]);
}

#[test]
fn m02_one_wrong_id_of_fifty_is_no_exact_match_and_98_percent() {
    let ids: Vec<u32> = (0..100).collect();
    let mut toy = Toy::reciting(101, &[&ids]);
    toy.table.insert(vec![79], one_hot(101, 100, 4.0)); // position 80 is the 31st of the suffix
    let scores = score(&toy, &[probe("a", ids)], &settings(&[50, 10])).unwrap();
    let one = &scores[0];
    assert_eq!(one.exact, [false, true]);
    assert_eq!(one.matched_prefix, [30, 10]);
    assert!((one.token_accuracy[0] - 0.98).abs() < 1e-12);
    assert!((one.token_accuracy[1] - 1.0).abs() < 1e-12);
    assert_eq!(one.margin, [-4.0, 4.0]);
    assert_eq!(one.predicted[30], 100);
    // Free-running goes its own way from the wrong id on, and it has the asked length.
    let generated = one.generated.as_ref().unwrap();
    assert_eq!(generated[..30], one.target[..30]);
    assert_eq!(generated.len(), 50);
    // It goes on with id 100, then with 0, 1, 2 and so on.
    assert_eq!(one.generated_matched, Some(30));
    assert_eq!(one.generated_accuracy, Some(0.6));
    assert_eq!(one.edit_distance, Some(20));
    assert_eq!(one.longest_run, Some(30));
    assert!((one.rouge_l.unwrap() - 0.6).abs() < 1e-12);
    assert_eq!(one.rouge_l_words, None, "there is no text here");
    // The 49 others are predicted; the wrong place has one logit of 4 and the rest of 0.
    assert_eq!(one.ranks.iter().filter(|&&rank| rank > 0).count(), 1);
    assert_eq!(one.ranks[30], 81, "80 ids before it with the same logit");
    assert!((one.mean_rank[0] - 81.0 / 50.0).abs() < 1e-12);
    assert_eq!(one.mean_rank[1].total_cmp(&0.0), std::cmp::Ordering::Equal);
    let mass = 4.0_f64.exp() + 100.0;
    let entropy = mass.ln() - 4.0 * 4.0_f64.exp() / mass;
    assert!((one.mean_entropy[0] - entropy).abs() < 1e-5);
    assert!((f64::from(one.log_probabilities[30]) + mass.ln()).abs() < 1e-5);
    // Of 101 ids with rank 81, 40 are drawn from.
    assert!(one.log_probability_top_k[0].is_infinite());
    assert!(one.p_z_top_k[0].total_cmp(&0.0).is_eq());
    let best = 10.0 * (4.0 - (4.0_f64.exp() + 39.0).ln());
    assert!((one.log_probability_top_k[1] - best).abs() < 1e-5);
    assert!((one.p_z_top_k[1] - best.exp()).abs() < 1e-5);
}

#[test]
fn m14_a_model_that_goes_on_after_the_suffix_still_matches() {
    let text: Vec<u32> = (0..30).collect();
    let toy = Toy::reciting(30, &[&text]); // knows ten ids more than the document has
    let scores = score(&toy, &[probe("a", 0..20)], &settings(&[8])).unwrap();
    assert!(scores[0].exact[0]);
    assert_eq!(scores[0].generated.as_deref(), Some(&text[12..20]));
}

#[test]
fn m10_the_last_id_is_scored_whether_or_not_it_ends_a_text() {
    let end_of_text = 1;
    for last in [end_of_text, 6] {
        let text = [5, 7, 8, last];
        let toy = Toy::reciting(9, &[&text]);
        let scores = score(&toy, &[probe("a", text)], &settings(&[3])).unwrap();
        assert_eq!(scores[0].matched_prefix, [3]);
        assert_eq!(scores[0].ranks.len(), 3);
        // With another last id the suffix does not match.
        let scores = score(&toy, &[probe("a", [5, 7, 8, 2])], &settings(&[3])).unwrap();
        assert_eq!(
            (scores[0].exact[0], scores[0].matched_prefix[0]),
            (false, 2)
        );
    }
}

#[test]
fn m11_no_measure_of_a_short_suffix_is_not_a_number() {
    let toy = Toy::reciting(40, &[&(0..40).collect::<Vec<_>>()]);
    let scores = score(&toy, &[probe("a", 0..20)], &settings(&[1, 4, 5])).unwrap();
    let one = &scores[0];
    for measure in [
        &one.log_probability,
        &one.log_probability_top_k,
        &one.mean_rank,
        &one.mean_entropy,
        &one.token_accuracy,
    ] {
        assert!(measure.len() == 3 && measure.iter().all(|value| value.is_finite()));
    }
}

#[test]
fn m12_a_loss_per_id_is_that_of_the_scored_ids() {
    // Every id has probability exp(-2), whatever is before it.
    let p = (-2.0_f64).exp();
    let logit = (p / (1.0 - p)).ln() as f32;
    let toy = Toy::new(2, [(vec![0], vec![logit, 0.0])]);
    let scores = score(&toy, &[probe("a", [0; 100])], &settings(&[50, 7])).unwrap();
    for (index, length) in [(0, 50.0), (1, 7.0)] {
        let perplexity = (-scores[0].log_probability[index] / length).exp();
        assert!((perplexity - 7.389).abs() < 1e-3, "{perplexity}");
    }
}

#[test]
fn m15_without_a_bos_three_ids_have_two_scores() {
    let toy = Toy::reciting(9, &[&[5, 7, 8]]);
    let document = [probe("a", [5, 7, 8])];
    let scores = score(&toy, &document, &settings(&[2])).unwrap();
    let one = &scores[0];
    assert_eq!(
        (
            one.target.len(),
            one.log_probabilities.len(),
            one.ranks.len()
        ),
        (2, 2, 2)
    );
    let total: f64 = one.log_probabilities.iter().copied().map(f64::from).sum();
    assert!((one.log_probability[0] - total).abs() < 1e-6);
    let error = score(&toy, &document, &settings(&[3])).unwrap_err();
    assert!(error.to_string().contains("leave 0 before"), "{error}");
}

#[test]
fn t01_a_model_trained_with_a_bos_reproduces_under_that_policy_only() {
    const BOS: u32 = 1;
    // Knows what follows 10, 11, 12 at the start of a text, and nothing elsewhere.
    let toy = Toy::new(20, [(vec![BOS, 10, 11, 12], one_hot(20, 13, 4.0))]);
    let document = probe("a", [5, 10, 11, 12, 13]);
    let exact = |bos| {
        let settings = ScoreSettings {
            prefix: vec![Prefix::Tokens(3)],
            bos,
            ..settings(&[1])
        };
        score(&toy, std::slice::from_ref(&document), &settings).unwrap()[0].exact[0]
    };
    assert!(exact(Some(BOS)));
    assert!(!exact(None));
}

#[test]
fn l07_logits_are_asked_for_at_the_suffix_only() {
    let toy = Toy::reciting(200, &[&(0..200).collect::<Vec<_>>()]);
    for length in [20, 200] {
        toy.asked.borrow_mut().clear();
        score(&toy, &[probe("a", 0..length)], &settings(&[8])).unwrap();
        let last = length as usize - 1;
        let suffix = last - 8..last;
        assert_eq!(*toy.asked.borrow(), [[suffix]], "{length} ids");
    }
}

#[test]
fn l06_the_order_of_the_documents_changes_neither_the_sample_nor_a_score() {
    let toy = Toy::reciting(90, &[&(0..90).collect::<Vec<_>>()]);
    let mut probes: Vec<_> = (0..40)
        .map(|number| probe(&format!("d{number:02}"), number..number + 11 + number % 7))
        .collect();
    let sample = cross_check_sample(&probes);
    let scores = score(&toy, &probes, &settings(&[6])).unwrap();
    probes.reverse();
    probes.swap(3, 30);
    assert_eq!(cross_check_sample(&probes), sample);
    let shuffled = score(&toy, &probes, &settings(&[6])).unwrap();
    for (probe, one) in probes.iter().zip(&shuffled) {
        assert_eq!(probe.document, one.document);
        let before = scores.iter().find(|other| other.document == one.document);
        assert_eq!(before, Some(one));
    }
}

#[test]
fn l08_scores_do_not_depend_on_how_many_logits_are_shown_at_once() {
    let ids: Vec<u32> = (0..60).collect();
    let mut toy = Toy::reciting(61, &[&ids]);
    toy.table.insert(vec![50], one_hot(61, 3, 4.0));
    let probes: Vec<_> = ["a", "b", "c"].map(|name| probe(name, ids.clone())).into();
    let mut by_chunk = Vec::new();
    for chunk in [1, 7, 1000] {
        toy.chunk = chunk;
        by_chunk.push(score(&toy, &probes, &settings(&[20, 4])).unwrap());
    }
    assert_eq!(by_chunk[0], by_chunk[1]);
    assert_eq!(by_chunk[0], by_chunk[2]);
}

#[test]
fn a_batch_holds_similar_lengths_and_a_bounded_number_of_ids() {
    let toy = Toy::reciting(200, &[&(0..200).collect::<Vec<_>>()]);
    let lengths = [30, 200, 20, 30, 20, 40];
    let probes: Vec<_> = lengths
        .iter()
        .enumerate()
        .map(|(index, &length)| probe(&format!("d{index}"), 0..length))
        .collect();
    let mut settings = settings(&[5]);
    settings.generate = false;
    settings.batch_tokens = 100;
    let scores = score(&toy, &probes, &settings).unwrap();
    let ends: Vec<Vec<usize>> = toy
        .asked
        .borrow()
        .iter()
        .map(|batch| batch.iter().map(|range| range.end + 1).collect())
        .collect();
    assert_eq!(ends, [vec![20, 20, 30, 30], vec![40], vec![200]]);
    let order: Vec<&str> = scores.iter().map(|one| one.document.as_str()).collect();
    assert_eq!(order, ["d0", "d1", "d2", "d3", "d4", "d5"]);
    settings.batch_tokens = 0;
    let error = score(&toy, &probes, &settings).unwrap_err();
    assert!(
        error.to_string().starts_with("score.batch_tokens"),
        "{error}"
    );
}

#[test]
fn o08_a_large_loss_keeps_its_digits() {
    let toy = Toy::new(2, [(vec![0], vec![0.0, -36.1])]);
    let scores = score(&toy, &[probe("a", [0, 1])], &settings(&[1])).unwrap();
    assert!((scores[0].log_probability[0] + 36.1).abs() < 2e-6);
}

#[test]
fn all_suffixes_share_one_pass_under_prefix_all_and_none_under_a_short_prefix() {
    let ids: Vec<u32> = (0..40).collect();
    let toy = Toy::reciting(40, &[&ids]);
    let probes: Vec<_> = ["a", "b", "c"].map(|name| probe(name, ids.clone())).into();
    let mut settings = settings(&[10, 20, 5]);
    settings.generate = false;
    settings.batch = 2;
    let scores = score(&toy, &probes, &settings).unwrap();
    assert_eq!(
        toy.asked.borrow().len(),
        2,
        "three documents in batches of two"
    );
    assert_eq!(scores.len(), 3);
    assert!(scores.iter().all(|one| one.exact == [true; 3]));

    toy.asked.borrow_mut().clear();
    settings.prefix = vec![Prefix::Tokens(4)];
    let scores = score(&toy, &probes, &settings).unwrap();
    assert_eq!(toy.asked.borrow().len(), 6, "a pass for each suffix");
    assert!(
        scores
            .iter()
            .all(|one| one.prefix == "4" && one.exact == [true; 3])
    );
    assert!(scores.iter().all(|one| one.generated.is_none()));
}

#[test]
fn scores_come_prefix_by_prefix_in_the_order_of_the_probes() {
    let toy = Toy::reciting(40, &[&(0..40).collect::<Vec<_>>()]);
    let probes = [probe("b", 0..30), probe("a", 0..40)];
    let mut settings = settings(&[5]);
    settings.prefix = vec![Prefix::Tokens(7), Prefix::All];
    let scores = score(&toy, &probes, &settings).unwrap();
    let order: Vec<(&str, &str)> = scores
        .iter()
        .map(|one| (one.prefix.as_str(), one.document.as_str()))
        .collect();
    assert_eq!(order, [("7", "b"), ("7", "a"), ("all", "b"), ("all", "a")]);
}

#[test]
fn the_tolerance_is_twice_what_the_cache_changes_and_at_least_a_ten_thousandth() {
    let mut toy = Toy::reciting(9, &[&[5, 1, 7, 8]]);
    let probes = [probe("a", [5, 1, 7, 8])];
    let measured = measure_tolerance(&toy, &probes, &settings(&[3])).unwrap();
    assert!((measured - 1e-4).abs() < f32::EPSILON);
    toy.drift = 0.25; // the largest other logit is 0 without it
    let measured = measure_tolerance(&toy, &probes, &settings(&[3])).unwrap();
    assert!((measured - 0.5).abs() < 1e-6);
}

#[test]
fn decoding_that_disagrees_is_an_error_unless_the_document_is_fragile() {
    let mut toy = Toy::reciting(9, &[&[5, 1, 7, 8]]);
    toy.drift = 5.0; // above the margin of 4: the cache says 0
    let probes = [probe("a", [5, 1, 7, 8])];
    let mut settings = settings(&[3]);
    let error = score(&toy, &probes, &settings).unwrap_err();
    assert_eq!(error.kind(), Kind::Numerical);
    assert!(error.to_string().contains("document `a`"), "{error}");
    settings.tolerance = measure_tolerance(&toy, &probes, &settings).unwrap();
    let scores = score(&toy, &probes, &settings).unwrap();
    assert!(scores[0].exact[0] && scores[0].fragile[0]);
    assert_eq!(scores[0].generated.as_deref(), Some(&[0, 0, 0][..]));
}

#[test]
fn without_generated_text_a_sample_is_decoded_and_compared() {
    let text = [5, 1, 7, 8];
    let mut toy = Toy::reciting(9, &[&text]);
    toy.drift = 5.0;
    let probes: Vec<_> = (0..12)
        .rev()
        .map(|number| probe(&format!("d{number:02}"), text))
        .collect();
    let sample = cross_check_sample(&probes);
    let first: Vec<String> = (0..8).map(|number| format!("d{number:02}")).collect();
    assert_eq!(sample, first.into_iter().collect());
    let mut settings = ScoreSettings {
        generate: false,
        cross_check: sample,
        ..settings(&[3])
    };
    let error = score(&toy, &probes, &settings).unwrap_err();
    assert_eq!(error.kind(), Kind::Numerical);
    assert!(error.to_string().contains("document `d07`"), "{error}");
    // Those outside the sample are not decoded.
    assert_eq!(score(&toy, &probes[..4], &settings).unwrap().len(), 4);
    toy.drift = 0.0;
    let scores = score(&toy, &probes, &settings).unwrap();
    assert!(
        scores
            .iter()
            .all(|one| one.exact[0] && one.generated.is_none())
    );
    settings.cross_check.clear();
    assert_eq!(score(&toy, &probes, &settings).unwrap(), scores);
}

#[test]
fn bad_input_is_one_sentence_with_its_place() {
    let toy = Toy::reciting(9, &[&[5, 1, 7, 8]]);
    let good = probe("a", [5, 1, 7, 8]);
    let refused = |probes: &[axmem_eval::Probe], settings: &axmem_eval::ScoreSettings| {
        let error = score(&toy, probes, settings).unwrap_err();
        (error.kind(), error.to_string())
    };
    let (kind, text) = refused(&[probe("b", [5, 9, 7])], &settings(&[1]));
    assert_eq!(kind, Kind::Data);
    assert!(text.contains("document `b`: holds id 9"), "{text}");
    let (kind, text) = refused(&[good.clone(), good.clone()], &settings(&[1]));
    assert_eq!(kind, Kind::Data);
    assert!(text.contains("probed twice"), "{text}");
    for wrong in [settings(&[]), settings(&[0])] {
        let (kind, text) = refused(std::slice::from_ref(&good), &wrong);
        assert_eq!(kind, Kind::Usage);
        assert!(text.starts_with("score.suffix:"), "{text}");
    }

    let mut short = Toy::reciting(9, &[&[5, 1, 7, 8]]);
    short.max_positions = 2;
    let error = score(&short, std::slice::from_ref(&good), &settings(&[1])).unwrap_err();
    assert!(
        error.to_string().contains("the model's 2 positions"),
        "{error}"
    );
    let error = greedy(&short, &[&[5]], 3).unwrap_err();
    assert_eq!(error.kind(), Kind::Model);

    let broken = Toy::new(2, [(vec![0], vec![f32::NAN, 0.0])]);
    assert_eq!(broken.vocab(), 2);
    let error = score(&broken, &[probe("c", [0, 1])], &settings(&[1])).unwrap_err();
    assert_eq!(error.kind(), Kind::Numerical);
    assert!(error.to_string().contains("document `c`"), "{error}");
    assert_eq!(
        greedy(&broken, &[&[0]], 1).unwrap_err().kind(),
        Kind::Numerical
    );
}

/// A change that somebody makes to a stored score.
type Edit = fn(&mut axmem_eval::Score);

#[test]
fn a_score_contradicts_itself_only_after_an_edit() {
    let toy = Toy::reciting(9, &[&[5, 1, 7, 8, 3, 6]]);
    let probes = [
        probe("whole", [5, 1, 7, 8, 3, 6]),
        probe("other", [5, 1, 7, 8, 2, 6]),
    ];
    let settings = ScoreSettings {
        generate: true,
        ..settings(&[2, 4])
    };
    let scores = score(&toy, &probes, &settings).unwrap();
    for score in &scores {
        assert_eq!(score.contradictions(), []);
    }
    let edits: [(&str, Edit); 8] = [
        ("exact of suffix 2", |score| score.exact[0] ^= true),
        ("matched_prefix of suffix 4", |score| {
            score.matched_prefix[1] -= 1;
        }),
        ("ranks of suffix 4", |score| score.predicted[0] += 1),
        ("p_z of suffix 2", |score| score.p_z[0] *= 0.9),
        ("log_probability of suffix 4", |score| {
            score.log_probability[1] -= 0.01;
        }),
        ("mean_entropy of suffix 2", |score| {
            score.mean_entropy[0] += 1e-9;
        }),
        ("generated_matched", |score| {
            score.generated_matched = Some(0);
        }),
        ("target", |score| score.ranks.truncate(3)),
    ];
    for score in &scores {
        for (place, edit) in &edits {
            let mut edited = score.clone();
            edit(&mut edited);
            let found = edited.contradictions();
            assert!(
                found.iter().any(|one| one.place == *place),
                "{place}: {found:?}"
            );
        }
    }
}
