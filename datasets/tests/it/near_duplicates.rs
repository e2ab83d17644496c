//! Edited copies form one cluster, pages of one template do not.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use axmem_datasets::bucket::{BucketSettings, assign};
use axmem_datasets::cluster::Clusters;
use axmem_datasets::document::Document;
use axmem_datasets::eligibility::{
    self, Bos, DocumentSettings, TokenDocument, Windows, tokenize_with,
};
use axmem_datasets::near_duplicates::{self, MOST_WORDS, NearDuplicate, NearSettings};
use axmem_datasets::random::uniform;
use axmem_datasets::tokenizer::Tokenizer;

const WINDOW: usize = 100;

/// A text of words that are one id each.
fn words(name: &str, count: usize) -> Vec<String> {
    let word = |place: usize| {
        let draw = uniform(1, name, &[&place.to_le_bytes()]);
        format!("w{:03}", (draw * 1000.0) as usize)
    };
    (0..count).map(word).collect()
}

/// The words with one of `every` replaced, at places that depend on the name.
fn edited(text: &[String], name: &str, every: usize) -> Vec<String> {
    let mut text = text.to_vec();
    for (place, word) in text.iter_mut().enumerate() {
        let draw = uniform(2, name, &[&place.to_le_bytes()]);
        if draw < 1.0 / every as f64 {
            *word = format!("w{:03}", (draw * 1e6) as usize % 1000);
        }
    }
    text
}

fn article(id: impl Into<String>, words: &[String]) -> Document {
    Document {
        id: id.into(),
        text: words.join(" "),
        ..Document::default()
    }
}

/// Every word an id, no subwords.
fn tokenizer() -> Tokenizer {
    let vocabulary: BTreeMap<String, u32> = (0..1000)
        .map(|number| (format!("w{number:03}"), number))
        .collect();
    let file = serde_json::json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [],
        "normalizer": null, "pre_tokenizer": { "type": "WhitespaceSplit" },
        "post_processor": null, "decoder": null,
        "model": { "type": "WordLevel", "vocab": vocabulary, "unk_token": "w000" },
    });
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokenizer.json");
    std::fs::write(&path, file.to_string()).unwrap();
    Tokenizer::from_file(path).unwrap()
}

fn clustered(articles: &[Document]) -> (Vec<TokenDocument>, Vec<NearDuplicate>) {
    let settings = DocumentSettings {
        tokens: WINDOW,
        min_tokens: WINDOW,
        bos: Bos::Never,
        windows: Windows::First,
    };
    let near = NearSettings {
        shingle: 8,
        overlap: 0.5,
    };
    let tokenizer = tokenizer();
    let sketch = |text: &[u32]| near.sketch(text, WINDOW);
    let (mut windows, sketches) =
        tokenize_with(articles, "test", &tokenizer, &settings, sketch).unwrap();
    let mut clusters = Clusters::of_texts(&[articles]).unwrap();
    let hashes = eligibility::hashes(&windows);
    clusters.label(&mut windows, &hashes).unwrap();
    let ids: Vec<String> = articles.iter().map(|article| article.id.clone()).collect();
    let read = |names: &HashSet<&str>| {
        let named = articles.iter().rev();
        Ok(named
            .filter(|article| names.contains(article.id.as_str()))
            .cloned()
            .collect())
    };
    let articles = near_duplicates::Articles {
        ids: &ids,
        sketches: &sketches,
        documents: settings,
        read: &read,
    };
    let pairs =
        near_duplicates::join(&mut clusters, &mut windows, &articles, &tokenizer, &near).unwrap();
    (windows, pairs)
}

/// The clusters as sets of articles, those of one article left out.
fn groups(windows: &[TokenDocument]) -> Vec<Vec<&str>> {
    let mut clusters: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for window in windows {
        let members = clusters.entry(&window.cluster).or_default();
        members.push(&window.article);
    }
    clusters
        .into_values()
        .filter(|group| group.len() > 1)
        .collect()
}

#[test]
fn d13_pages_of_one_template_are_no_cluster() {
    // 62 of the 100 words of a window are those of all pages: above the overlap by that alone.
    let template = words("template", 62);
    let mut pages: Vec<Document> = (0..20)
        .map(|page| {
            let own = words(&format!("page {page}"), 45);
            article(format!("{page:02}"), &[&template[..], &own].concat())
        })
        .collect();
    let (windows, pairs) = clustered(&pages);
    assert_eq!((groups(&windows), pairs), (Vec::<Vec<&str>>::new(), vec![]));

    // Two of them have the same words of their own, but for some.
    let own = edited(&words("page 3", 45), "copy", 25);
    pages.push(article("20", &[&template[..], &own].concat()));
    let (windows, _) = clustered(&pages);
    assert_eq!(groups(&windows), [["03", "20"]]);

    // Few pages with much text in common are near-copies.
    let (windows, _) = clustered(&pages[..3]);
    assert_eq!(groups(&windows), [["00", "01", "02"]]);
}

#[test]
fn near_copies_are_in_one_bucket_however_they_were_edited() {
    let mut articles: Vec<Document> = Vec::new();
    for pair in 0..12 {
        let name = format!("article {pair}");
        let text = words(&name, 300);
        let copy = match pair % 4 {
            // Words replaced, another beginning (so that no window is alike), an end cut off, and
            // a beginning alone that is alike.
            0 => edited(&text, &name, 20),
            1 => [words(&format!("lead {pair}"), 120), text.clone()].concat(),
            2 => text[..WINDOW + 20].to_vec(),
            _ => [
                edited(&text[..WINDOW], &name, 30),
                words(&format!("end {pair}"), 200),
            ]
            .concat(),
        };
        articles.push(article(format!("{pair:02} copy"), &copy));
        articles.push(article(format!("{pair:02}"), &text));
    }
    let (windows, pairs) = clustered(&articles);
    assert_eq!(groups(&windows).len(), 12, "{pairs:#?}");
    for pair in &pairs {
        assert_eq!(pair.second, format!("{} copy", pair.first));
        assert_eq!(pair.cluster, pair.first);
        assert!((0.5..=1.0).contains(&pair.share), "{pair:?}");
        assert!(pair.run >= 8);
        assert!(pair.text.split(' ').count() <= MOST_WORDS + 1);
        let number = articles.iter().position(|article| article.id == pair.first);
        let shown = pair.text.trim_end_matches(" …");
        assert!(articles[number.unwrap()].text.contains(shown), "{shown}");
    }
    let settings = BucketSettings {
        size: 6,
        epochs: vec![0, 4],
        trials: 1,
        seed: 3,
    };
    let mut levels: BTreeMap<String, BTreeSet<u32>> = BTreeMap::new();
    for row in assign(&windows, &settings).unwrap() {
        let name = row.document.replace(" copy", "");
        levels.entry(name).or_default().insert(row.epochs);
    }
    assert_eq!(levels.len(), 12);
    assert!(
        levels.values().all(|levels| levels.len() == 1),
        "{levels:?}"
    );
}

#[test]
fn thirty_copies_of_one_article_are_one_cluster() {
    let text = words("text", 150);
    let mut articles: Vec<Document> = (0..30)
        .map(|copy| {
            let name = format!("copy {copy:02}");
            article(&*name, &edited(&text, &name, 200))
        })
        .collect();
    articles.extend((0..30).map(|other| {
        let name = format!("other {other:02}");
        article(&*name, &words(&name, 150))
    }));
    let (windows, pairs) = clustered(&articles);
    let copies: Vec<String> = (0..30).map(|copy| format!("copy {copy:02}")).collect();
    assert_eq!(groups(&windows), [copies]);
    // The others have the window of one of these, and are exact copies.
    assert_eq!(near_duplicates::sizes(&pairs), [("copy 00", 13)]);
    // Neighbours alone are compared, not all 435 pairs.
    assert!(pairs.len() <= 245, "{}", pairs.len());
}

#[test]
fn the_order_of_the_articles_and_the_threads_change_nothing() {
    let mut articles: Vec<Document> = (0..40)
        .map(|number| {
            let text = words(&format!("text {}", number / 2), 150);
            article(format!("{number}"), &edited(&text, &number.to_string(), 60))
        })
        .collect();
    let (_, pairs) = clustered(&articles);
    assert!(pairs.len() >= 15, "{}", pairs.len());
    articles.reverse();
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build();
    let (_, again) = pool.unwrap().install(|| clustered(&articles));
    assert_eq!(pairs, again);
}
