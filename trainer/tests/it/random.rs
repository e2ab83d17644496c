//! Random numbers against their definition in Python (`fixtures/make_random.py`).

use axmem_trainer::random::Stream;
use serde_json::Value;

#[test]
fn numbers_are_the_same_on_every_platform() {
    let cases: Value = serde_json::from_str(include_str!("../fixtures/random.json")).unwrap();
    for case in cases.as_array().unwrap() {
        let stream = Stream::new(
            case["seed"].as_u64().unwrap(),
            case["name"].as_str().unwrap(),
        );
        for (index, bits) in (0..).zip(case["bits"].as_array().unwrap()) {
            assert_eq!(stream.bits(index), bits.as_u64().unwrap());
        }
        for (index, normal) in (0..).zip(case["normal"].as_array().unwrap()) {
            assert_eq!(stream.normal(index) as f32, normal.as_f64().unwrap() as f32);
        }
    }
}
