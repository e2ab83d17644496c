//! `axmem power` on shipped experiments.

use serde_json::Value;

use crate::support::{axmem, finish};

fn quickstart() -> String {
    concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../experiments/quickstart.yaml"
    )
    .to_owned()
}

fn answer(more: &[&str]) -> String {
    let output = axmem(&["power", &quickstart()]).args(more).output();
    let output = output.expect("the program starts");
    assert!(output.status.success());
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn a_design_is_told_with_what_it_can_find() {
    let text = answer(&["--effect", "0.1,0.5"]);
    for part in [
        "24 clusters in each bucket (0, 8, 32, 64 exposures), 1 trial",
        "2 primary tests (models × arms × prefixes), so each at 2.5 %",
        "change at 64 exposures against the change of the control: 24 clusters a side",
        "smallest detectable effect: ",
        "| 10.0 % | ",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }

    let parsed: Value =
        serde_json::from_str(&answer(&["--effect", "0.1,0.5", "--json"])).expect("JSON");
    assert_eq!(parsed["design"]["family"], 2);
    let smallest = parsed["smallest_detectable"].as_f64().expect("an effect");
    assert!((0.2..0.6).contains(&smallest), "{smallest}");
    let simulated = parsed["simulated_power"].as_f64().expect("a power");
    assert!((0.74..0.9).contains(&simulated), "{simulated}");
    let needed = |index: usize| parsed["effects"][index]["clusters_per_bucket"].as_u64();
    assert!(needed(0) > Some(24) && needed(0) > needed(1), "{parsed}");
    // The more clusters that change by themselves, the larger the effect must be.
    let noisy: Value =
        serde_json::from_str(&answer(&["--discordance", "0.3", "--json"])).expect("JSON");
    assert!(noisy["smallest_detectable"].as_f64() > Some(smallest));
}

#[test]
fn what_cannot_be_planned_is_told() {
    let few = answer(&["--set", "buckets.size=2"]);
    assert!(few.contains("no effect is detectable"), "{few}");
    for (more, named) in [
        (["--effect", "1.5"], "--effect"),
        (["--effect", "0"], "--effect"),
        (["--discordance", "1"], "--discordance"),
        (["--power", "0"], "--power"),
        (["--set", "analysis.level=2"], "analysis.level"),
    ] {
        let (code, text) = finish(axmem(&["power", &quickstart()]).args(more));
        assert_eq!(code, 2, "{more:?} {text}");
        assert!(text.contains(named), "{more:?} {text}");
    }
}
