//! The page, the figures and the summary of made-up findings.

mod made;

use std::fs;

use super::{summary, verdict, write};
use crate::audit::findings::Findings;
use made::{findings, full};

/// The files of a report by name.
fn files(findings: &Findings) -> impl Fn(&str) -> String + use<> {
    let dir = tempfile::tempdir().unwrap();
    write(findings, dir.path()).unwrap();
    move |name| fs::read_to_string(dir.path().join(name)).expect(name)
}

/// The page without its markup.
fn words(html: &str) -> String {
    let main = html.split("<main>").nth(1).unwrap();
    let text: String = main
        .split('<')
        .map(|piece| piece.split_once('>').map_or(piece, |(_, text)| text))
        .collect();
    text.replace("&quot;", "\"")
        .replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&amp;", "&")
}

#[test]
fn the_first_sentence_answers_with_count_rate_and_interval() {
    let cases = [
        (
            (3, 100),
            "smollm2 reproduces the last 50 ids of 3 of 100 documents exactly (3 %, 95 % interval 1 to 8 %, Wilson) after everything before them.",
        ),
        (
            (0, 100),
            "of none of 100 documents exactly (0 %, 95 % interval 0 to 5 %, Wilson)",
        ),
        ((20, 20), "of all 20 documents exactly (100 %"),
        (
            (1, 1),
            "of the only document exactly (100 %, 95 % interval 98 to 100 %, Wilson) after everything before it.",
        ),
        ((0, 1), "of 0 of 1 document exactly"),
    ];
    for ((hits, documents), sentence) in cases {
        let text = words(&files(&findings(hits, documents))("report.html"));
        assert!(text.contains(sentence), "{sentence}\n{text}");
    }
}

#[test]
fn without_control_and_baseline_it_speaks_of_reproduction_only() {
    let text = words(&files(&findings(3, 100))("report.html"));
    assert!(text.contains("Reproduction alone does not show that a document was trained on."));
    assert_eq!(text.matches("trained on").count(), 1);
    let text = words(&files(&full())("report.html"));
    assert!(!text.contains("Reproduction alone"));
}

#[test]
fn control_and_baseline_have_their_sentences_and_tables() {
    let text = words(&files(&full())("report.html"));
    for sentence in [
        "The control: none of 100 documents (0 %, interval 0 to 5 %).",
        "The difference is 3 percentage points [−0.8, 8.4], p = 0.246",
        "The baseline smollm2-before reproduces 1 of 100 documents",
        "From the baseline to the model, 1 kept, 2 gained, 0 lost and 97 never reproduced; the rate \
         changes by 2 percentage points [−1, 6], p = 0.5 (bootstrap; McNemar).",
        "Beyond the change of the control it is 2 percentage points",
        "… and 10 documents more left out of the control.",
    ] {
        assert!(text.contains(sentence), "{sentence}\n{text}");
    }
}

#[test]
fn a_rate_fails_only_when_the_lower_end_of_its_interval_exceeds_the_limit() {
    let mut findings = findings(3, 100);
    assert!(verdict(&findings).is_none());
    for (limit, word) in [(0.009, "failed"), (0.011, "passed"), (0.05, "passed")] {
        findings.settings.fail_above = Some(limit);
        assert_eq!(verdict(&findings).unwrap().as_str(), word);
        assert_eq!(summary(&findings)["verdict"], word);
        let text = words(&files(&findings)("report.html"));
        assert!(text.contains(&format!("{}: the lower end", word.to_uppercase())));
    }
}

#[test]
fn texts_cannot_become_markup_or_turn_what_stands_around_them() {
    let html = files(&findings(3, 100))("report.html");
    for text in [
        "<script",
        "<img",
        "\u{202e}",
        "\u{7f}",
        "\0",
        "&amp;amp;amp",
    ] {
        assert!(!html.contains(text), "{text:?}");
    }
    let text = words(&html);
    assert!(text.contains("</script><img onerror=\"alert(1)\" src=x>\\u{202e}\\u{7f}\\u{0}&amp;"));
    assert!(html.contains("  two spaces\t&lt;/script&gt;"));
    assert!(html.contains("white-space: pre-wrap"));
}

#[test]
fn every_shown_document_is_in_the_page_and_the_first_difference_is_named() {
    let findings = findings(20, 100);
    let html = files(&findings)("report.html");
    let text = words(&html);
    for shown in &findings.shown {
        let id = shown.document.replace('\u{202e}', "\\u{202e}");
        let id = id.replace('\u{7f}', "\\u{7f}").replace('\0', "\\u{0}");
        assert!(text.contains(&id), "{id}");
    }
    assert!(text.contains("17 documents more reproduced, not shown here for their number."));
    assert!(text.contains("At most 25 words of true text are shown of a document"));
    assert_eq!(html.matches("<mark class=\"parts\">").count(), 4);
    assert_eq!(html.matches("first difference: </span>").count(), 4);
}

#[test]
fn the_page_stands_alone() {
    let html = files(&full())("report.html");
    for text in ["http://", "https://", "<link", "@import", "url("] {
        let found = html
            .replace("http://www.w3.org/2000/svg", "")
            .contains(text);
        assert!(!found, "{text} points outside the page");
    }
    assert_eq!(html.matches("<svg ").count(), 3);
}

#[test]
fn the_same_findings_give_the_same_bytes() {
    let (first, second) = (files(&full()), files(&full()));
    for name in [
        "report.html",
        "matched-prefix.svg",
        "log-probability.svg",
        "prompt-length.svg",
    ] {
        assert_eq!(first(name), second(name));
    }
    assert_eq!(summary(&full()), summary(&full()));
}

/// The value of an attribute of an element, given without its brackets.
fn attribute<'a>(element: &'a str, name: &str) -> Option<&'a str> {
    let (_, value) = element.split_once(&format!(" {name}=\""))?;
    value.split_once('"').map(|(value, _)| value)
}

/// Checks that elements nest, and that no text runs out of the picture, for letters as wide as the
/// widest common face has them on average.
fn assert_sound(svg: &str) {
    assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    let mut open: Vec<&str> = Vec::new();
    let (mut width, mut height) = (0.0, 0.0);
    for piece in svg.split('<').skip(1) {
        let (element, text) = piece.split_once('>').expect("an element is closed");
        let name = element.split([' ', '/']).find(|name| !name.is_empty());
        if let Some(name) = element.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name.trim()));
            continue;
        }
        if !element.ends_with('/') {
            open.push(name.unwrap());
        }
        let number = |name| attribute(element, name).and_then(|text| text.parse::<f64>().ok());
        match name {
            Some("svg") => (width, height) = (number("width").unwrap(), number("height").unwrap()),
            Some("text") => {
                let size: f64 = number("font-size").unwrap();
                let long = text.trim().chars().count() as f64 * size * 0.62;
                let (x, y) = (number("x").unwrap(), number("y").unwrap());
                let before = match attribute(element, "text-anchor") {
                    Some("middle") => long / 2.0,
                    Some("end") => long,
                    _ => 0.0,
                };
                let along = if attribute(element, "transform").is_some() {
                    (y - before, y - before + long, height)
                } else {
                    (x - before, x - before + long, width)
                };
                assert!(along.0 >= 0.0 && along.1 <= along.2, "{text} {along:?}");
                assert!((0.0..=height).contains(&y), "{text}");
            }
            _ => {}
        }
    }
    assert!(open.is_empty(), "{open:?}");
}

#[test]
fn figures_are_well_formed_and_hold_their_texts() {
    let certain = {
        let mut findings = findings(1, 1);
        findings.scored[0].log_probability = 0.0;
        findings
    };
    let impossible = {
        let mut findings = findings(0, 2);
        findings.scored[0].log_probability = f64::NEG_INFINITY;
        findings.scored[1].log_probability = f64::NAN;
        findings
    };
    let wide = {
        let mut findings = full();
        findings.settings.suffix = vec![7];
        for scored in &mut findings.scored {
            scored.log_probability *= 100.0;
        }
        findings
    };
    for findings in [
        findings(3, 100),
        findings(20, 20),
        certain,
        impossible,
        wide,
        full(),
    ] {
        let file = files(&findings);
        assert_sound(&file("matched-prefix.svg"));
        assert_sound(&file("log-probability.svg"));
        if findings.settings.prefix.len() > 1 {
            assert_sound(&file("prompt-length.svg"));
        }
    }
}

#[test]
fn nothing_scored_still_gives_a_page() {
    let mut findings = findings(0, 1);
    findings.rates.clear();
    findings.scored.clear();
    findings.shown.clear();
    findings.settings.fail_above = Some(0.1);
    let text = words(&files(&findings)("report.html"));
    assert!(text.contains("No document could be scored."));
    assert!(summary(&findings)["verdict"].is_null());
}

#[test]
fn the_summary_names_sets_and_models() {
    let value = summary(&full());
    assert_eq!(value["audit"], "smollm2");
    assert_eq!(value["models"]["baseline"]["name"], "smollm2-before");
    assert_eq!(value["estimates"][0]["set"], "documents");
    assert_eq!(value["estimates"][0]["model"], "model");
    assert_eq!(value["contrasts"][2]["kind"], "did");
    assert_eq!(value["contrasts"][1]["set"], "control");
    assert_eq!(value["overlap"][0]["gained"], 2);
    assert_eq!(value["reproduced"].as_array().unwrap().len(), 3);
    assert_eq!(value["verdict"], "failed");
}
