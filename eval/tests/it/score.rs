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
    assert!((scores[0].log_probability[0] - (-1.0 - mass.ln())).abs() < 1e-12);
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
