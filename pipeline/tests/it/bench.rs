//! What `axmem bench step` prints of the smoke study.

use serde_json::Value;

use crate::support::{axmem, smoke};

/// The lines that it prints as JSON.
fn lines(more: &[&str]) -> Vec<Value> {
    let store = tempfile::tempdir().expect("a folder");
    let mut command = axmem(&["bench", "step", "--json", "--warm", "1", "--steps", "3"]);
    command.arg(smoke()).arg("--store").arg(store.path());
    let output = command.args(more).output().expect("the program starts");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let line = |line| serde_json::from_str(line).expect("JSON");
    text.lines().map(line).collect()
}

#[test]
fn every_arm_has_a_line_with_every_step() {
    let lines = lines(&[]);
    let arms: Vec<_> = lines.iter().map(|line| line["arm"].clone()).collect();
    assert_eq!(arms, ["standard", "goldfish"]);
    for line in &lines {
        let mut seconds: Vec<f64> = serde_json::from_value(line["seconds"].clone()).unwrap();
        assert_eq!(seconds.len(), 3);
        seconds.sort_by(f64::total_cmp);
        assert_eq!(line["median"], seconds[1]);
        assert_eq!(line["tokens_per_second"], 4.0 * 64.0 / seconds[1]);
    }
    // 4 rows of 64 ids, the first of each no target.
    assert_eq!(lines[0]["kept_tokens"], 4 * 63);
    assert!(lines[1]["kept_tokens"].as_u64() < Some(4 * 63));
    assert!(lines[0]["products_share"].as_f64() > Some(0.0));
    assert!(lines[1]["products_share"].is_null());
}

#[test]
fn a_grid_shows_what_it_waited_for_on_its_axes() {
    let lines = lines(&["--only", "arm=standard", "--set", "grid={x: 2, z: 2}"]);
    let [line] = &lines[..] else {
        panic!("one line for one arm: {lines:?}");
    };
    assert_eq!(line["ranks"], 4);
    for axis in ["x", "z"] {
        assert!(line["exposed"][axis].as_f64() > Some(0.0), "{axis}");
    }
    assert_eq!(line["exposed"]["y"], 0.0);
    assert!(line["products_share"].is_null());
}
