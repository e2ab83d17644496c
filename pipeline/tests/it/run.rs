//! A whole study, again, at once, in a damaged store, with bad input, on a full disk.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::{axmem, finish, run_smoke, smoke, tables};

fn manifests(store: &Path) -> usize {
    tables(store)
        .keys()
        .filter(|name| !name.starts_with("cache"))
        .count()
}

#[test]
fn a_second_run_does_nothing_and_a_damaged_artefact_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let (code, text) = finish(&mut run_smoke(folder.path(), &[]));
    assert_eq!(code, 0, "{text}");
    for name in ["report.html", "report.md", "summary.json"] {
        assert!(folder.path().join("smoke").join(name).is_file(), "{name}");
    }
    let before = tables(folder.path());

    let started = Instant::now();
    let (code, text) = finish(&mut run_smoke(folder.path(), &[]));
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("nothing to do"), "{text}");
    assert!(
        started.elapsed() < Duration::from_secs(2),
        "{:?}",
        started.elapsed()
    );
    assert_eq!(tables(folder.path()), before);

    let scores = before
        .keys()
        .find(|name| name.starts_with("score-v2"))
        .expect("scores");
    let path = folder.path().join(scores);
    let mut bytes = fs::read(&path).expect("bytes");
    bytes[10] ^= 1;
    fs::write(&path, bytes).expect("a write");
    let (code, text) = finish(&mut run_smoke(folder.path(), &[]));
    assert_eq!(code, 3, "{text}");
    assert!(text.contains(&path.display().to_string()), "{text}");
    assert!(text.contains("another content"), "{text}");
}

#[test]
fn r01_r07_eight_processes_share_a_store() {
    let folder = tempfile::tempdir().expect("a folder");
    let spawn = || {
        run_smoke(folder.path(), &[])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
    };
    let children: Vec<_> = (0..8).map(|_| spawn().expect("it starts")).collect();
    for child in children {
        let output = child.wait_with_output().expect("it ends");
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    let alone = tempfile::tempdir().expect("a folder");
    assert_eq!(finish(&mut run_smoke(alone.path(), &[])).0, 0);
    assert_eq!(tables(folder.path()), tables(alone.path()));
}

#[test]
fn r05_output_without_a_manifest_does_not_exist() {
    let folder = tempfile::tempdir().expect("a folder");
    let bucket = |folder: &Path| {
        let mut command = axmem(&["bucket"]);
        command.arg(smoke()).arg("--store").arg(folder);
        finish(&mut command)
    };
    assert_eq!(bucket(folder.path()).0, 0);
    let whole = tables(folder.path());
    let tokens = whole
        .keys()
        .find(|name| name.starts_with("tokens-v2"))
        .expect("tokens");
    let path = folder.path().join(tokens);
    fs::write(&path, b"cut short").expect("a write");
    fs::remove_file(path.with_file_name("manifest.json")).expect("a removal");
    let (code, text) = bucket(folder.path());
    assert_eq!(code, 0, "{text}");
    assert_eq!(tables(folder.path()), whole);
}

#[test]
fn r14_a_report_that_cannot_be_written_is_a_failure() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("smoke"), "in the way").expect("a write");
    let (code, text) = finish(&mut run_smoke(folder.path(), &[]));
    assert_eq!(code, 5, "{text}");
    assert!(text.contains("smoke"), "{text}");

    let file = folder.path().join("a-file");
    fs::write(&file, "").expect("a write");
    let (code, text) = finish(&mut run_smoke(&file.join("store"), &[]));
    assert_eq!(code, 5, "{text}");
    assert!(
        text.lines()
            .filter(|line| line.starts_with("error: "))
            .count()
            == 1,
        "{text}"
    );
}

#[test]
fn bad_input_ends_with_its_exit_code_and_one_sentence() {
    let folder = tempfile::tempdir().expect("a folder");
    let cases: [(&[&str], i32, &str); 12] = [
        (&["--set", "trian.batch=4"], 2, "unknown key `trian`"),
        (
            &["--set", "train.rate.peak=\"'1e-4'\""],
            2,
            "expected a number",
        ),
        (&["--set", "score.suffix=[60]"], 2, "score.suffix"),
        (
            &["--set", "train.batch=18446744073709551615"],
            2,
            "train.batch: 18446744073709551615 is not from 1 to 100000",
        ),
        (
            &["--set", "model.random.hidden=1073741824"],
            2,
            "model.random.hidden: 1073741824 is not from 1 to 65536",
        ),
        // 2^32 + 2, which as a 32-bit number would be the level 2.
        (
            &["--set", "analysis.primary.exposures=4294967298"],
            2,
            "analysis.primary.exposures: 4294967298 is no treated level",
        ),
        (
            &["--set", "analysis.resamples=1000000000000"],
            2,
            "analysis.resamples: 1000000000000 is not from 1 to 1000000",
        ),
        (
            &["--set", "name=locks"],
            2,
            "name: locks is a folder of the store",
        ),
        (&["--set", "buckets.size=5000"], 2, "largest possible size"),
        (
            &["--set", "corpus.source=/no/such/folder"],
            3,
            "/no/such/folder",
        ),
        (
            &[
                "--set",
                "model={source: /no/such/model}",
                "--set",
                "tokenizer=",
            ],
            4,
            "there is no model folder /no/such/model",
        ),
        (
            &["--set", "model.random.vocab=200"],
            4,
            "the tokenizer has 300 ids, the model's vocabulary 200",
        ),
    ];
    for (sets, expected, sentence) in cases {
        let (code, text) = finish(&mut run_smoke(folder.path(), sets));
        assert_eq!(code, expected, "{sets:?}: {text}");
        assert!(text.contains(sentence), "{sets:?}: {text}");
        assert!(!text.contains("panicked"), "{text}");
    }
    let missing = finish(&mut axmem(&["run", "/no/such/file.yaml"]));
    assert_eq!(missing.0, 2, "{}", missing.1);
    assert_eq!(finish(&mut axmem(&["no-such-command"])).0, 2);
}

#[test]
fn damaged_text_is_named_with_its_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let hash = "0".repeat(64);
    let cases: [(&str, &[u8], Option<&str>); 3] = [
        ("cut.parquet", b"PAR1 and then nothing", None),
        ("cut.xml.bz2", b"BZh91AY&SY and then nothing", None),
        (
            "other.jsonl",
            b"{\"id\": \"1\", \"text\": \"a\"}\n",
            Some(&hash),
        ),
    ];
    for (name, bytes, hash) in cases {
        let path = folder.path().join(name);
        fs::write(&path, bytes).expect("a write");
        let mut sets = vec![
            "--set".to_owned(),
            format!("corpus.source={}", path.display()),
        ];
        if let Some(hash) = hash {
            sets.extend(["--set".to_owned(), format!("corpus.sha256=\"{hash}\"")]);
        }
        let sets: Vec<&str> = sets.iter().map(String::as_str).collect();
        let (code, text) = finish(&mut run_smoke(&folder.path().join("store"), &sets));
        assert_eq!(code, 3, "{name}: {text}");
        assert!(text.contains(name), "{name}: {text}");
        assert!(!text.contains("panicked"), "{text}");
    }
}

#[test]
fn the_70b_study_prints_its_stages_and_says_what_is_missing() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../experiments/70b.yaml");
    let output = axmem(&["run", "--dry-run", "--store"])
        .arg(folder.path())
        .arg(&file)
        .output()
        .expect("it starts");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let stages = [
        "corpus",
        "weights",
        "score(initial)",
        "warmup",
        "train goldfish 2",
        "report",
    ];
    for stage in stages {
        assert!(text.contains(stage), "{stage} in\n{text}");
    }
    let (code, text) = finish(axmem(&["run", "--store"]).arg(folder.path()).arg(&file));
    assert_eq!(code, 4, "{text}");
    assert!(
        text.contains("about 138 GB in bf16") && text.contains("huggingface-cli download"),
        "{text}"
    );
}

#[test]
fn a_closed_pipe_is_no_panic() {
    let script = format!(
        "{} completions bash | head -n 1 >/dev/null; exit ${{PIPESTATUS[0]}}",
        env!("CARGO_BIN_EXE_axmem")
    );
    let output = Command::new("bash")
        .arg("-c")
        .arg(script)
        .output()
        .expect("a shell");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn a_full_disk_ends_with_its_exit_code_and_nothing_half_written() {
    let folder = tempfile::tempdir().expect("a folder");
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=200k", "tmpfs"])
        .arg(folder.path())
        .output();
    if !mounted.is_ok_and(|output| output.status.success()) {
        println!("skipped: mounting a small tmpfs is not permitted here");
        return;
    }
    let outcome = finish(&mut run_smoke(&folder.path().join("store"), &[]));
    let released = Command::new("umount").arg(folder.path()).status();
    assert_eq!(outcome.0, 5, "{}", outcome.1);
    assert!(outcome.1.contains("o space left"), "{}", outcome.1);
    assert!(released.is_ok_and(|status| status.success()));
    assert_eq!(manifests(folder.path()), 0);
}
