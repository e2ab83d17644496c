//! The Goldfish mask against masks written from its definitions in Python (`fixtures/make_goldfish.py`).

use axmem_trainer::goldfish::{Goldfish, Hash};
use axmem_trainer::random::Stream;
use serde_json::Value;

fn fixture() -> Value {
    serde_json::from_str(include_str!("../fixtures/goldfish.json")).unwrap()
}

fn ids(value: &Value) -> Vec<u32> {
    serde_json::from_value(value.clone()).unwrap()
}

fn text(keep: &[bool]) -> String {
    keep.iter()
        .map(|kept| if *kept { '1' } else { '0' })
        .collect()
}

fn portable(k: u32, h: usize) -> Goldfish {
    Goldfish::new(k, h, Hash::Portable { key: 0 }).unwrap()
}

/// `count` ids below `vocab`.
fn random_ids(name: &str, count: u64, vocab: u64) -> Vec<u32> {
    let stream = Stream::new(0, name);
    (0..count)
        .map(|i| (stream.bits(i) % vocab) as u32)
        .collect()
}

#[test]
fn masks_equal_those_of_the_released_code_and_of_the_definition() {
    let fixture = fixture();
    let ids = ids(&fixture["ids"]);
    let cases = fixture["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 18);
    for case in cases {
        let hash = match case["hash"].as_str().unwrap() {
            "released" => Hash::Released,
            _ => Hash::Portable {
                key: case["key"].as_u64().unwrap(),
            },
        };
        let k = case["k"].as_u64().unwrap() as u32;
        let h = case["h"].as_u64().unwrap() as usize;
        let keep = Goldfish::new(k, h, hash).unwrap().keep(&ids);
        assert_eq!(
            text(&keep),
            case["keep"].as_str().unwrap(),
            "{hash:?} k={k} h={h}"
        );
    }
}

#[test]
fn o15_golden_masks_are_the_same_everywhere() {
    let golden = &fixture()["golden"];
    let ids = ids(&golden["ids"]);
    assert_eq!(ids.len(), 64);
    for k in [2, 3, 4] {
        let expected = golden["keep"][k.to_string()].as_str().unwrap();
        assert_eq!(text(&portable(k, 3).keep(&ids)), expected, "k={k}");
        // However many threads ask at once.
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| assert_eq!(text(&portable(k, 3).keep(&ids)), expected));
            }
        });
    }
}

#[test]
fn o13_k_and_h_have_no_default() {
    let read = |text| serde_json::from_str::<Goldfish>(text);
    let whole = r#"{"k": 2, "h": 13, "hash": {"portable": {"key": 0}}}"#;
    assert_eq!(read(whole).unwrap(), portable(2, 13));
    let error = read(r#"{"k": 2, "hash": "released"}"#).unwrap_err();
    assert!(error.to_string().contains("missing field `h`"), "{error}");
    let error = read(r#"{"h": 13, "hash": "released"}"#).unwrap_err();
    assert!(error.to_string().contains("missing field `k`"), "{error}");
    let error = read(r#"{"k": 1, "h": 13, "hash": "released"}"#).unwrap_err();
    assert!(error.to_string().contains("goldfish.k"), "{error}");
}

#[test]
fn o14_order_of_the_window_and_id_zero_matter() {
    // A target is dropped or not by the four ids before it: over many windows, a permuted window and one with another
    // id in place of 0 must disagree with the original about half the time under k = 2.
    let goldfish = portable(2, 4);
    let (mut permuted, mut replaced) = (0, 0);
    let windows = 2000;
    for window in random_ids("o14", 3 * windows, 32_000).chunks(3) {
        let dropped = |window: [u32; 4]| !goldfish.keep(&[&window[..], &[7]].concat())[4];
        let [a, b, c] = [window[0], window[1], window[2]];
        let original = dropped([a, b, 0, c]);
        permuted += usize::from(original != dropped([b, a, 0, c]));
        replaced += usize::from(original != dropped([a, b, 1, c]));
    }
    for differing in [permuted, replaced] {
        assert!((880..1120).contains(&differing), "{differing} of {windows}");
    }
}

#[test]
fn the_target_itself_is_not_hashed() {
    let goldfish = portable(2, 4);
    let ids = random_ids("target", 40, 32_000);
    let keep = goldfish.keep(&ids);
    for last in 0..100 {
        let mut changed = ids.clone();
        changed[39] = last;
        assert_eq!(goldfish.keep(&changed), keep);
    }
}

#[test]
fn kept_share_is_one_minus_one_in_k() {
    let n = 100_000;
    for (k, h) in [(2, 4), (3, 13), (4, 13), (32, 4)] {
        let ids = random_ids("share", n + h as u64, 32_000);
        let keep = portable(k, h).keep(&ids);
        let kept = keep[h..].iter().filter(|kept| **kept).count() as f64;
        let (p, n) = (1.0 - 1.0 / f64::from(k), n as f64);
        let deviation = (n * p * (1.0 - p)).sqrt();
        assert!(
            (kept - n * p).abs() < 4.0 * deviation,
            "k={k} h={h}: {kept} of {n}"
        );
    }
}

#[test]
fn the_start_of_a_document_is_never_dropped() {
    let ids = random_ids("start", 60, 32_000);
    for hash in [Hash::Portable { key: 9 }, Hash::Released] {
        for h in [1, 4, 13, 59, 60, 1000] {
            let keep = Goldfish::new(2, h, hash).unwrap().keep(&ids);
            assert!(!keep[0], "the first id is no target");
            assert!(keep[1..h.min(60)].iter().all(|kept| *kept), "h={h}");
        }
        let goldfish = Goldfish::new(2, 4, hash).unwrap();
        assert!(goldfish.keep(&[]).is_empty());
        assert_eq!(goldfish.keep(&[5]), [false]);
    }
}

#[test]
fn another_key_gives_another_mask() {
    let ids = random_ids("key", 200, 32_000);
    let mask = |key| {
        Goldfish::new(2, 4, Hash::Portable { key })
            .unwrap()
            .keep(&ids)
    };
    assert_ne!(mask(0), mask(1));
}
