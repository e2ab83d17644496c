//! `tokens`: the tokenizer, and every article of the corpus as token ids with its eligibility.

use std::collections::HashSet;
use std::mem;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use axmem_datasets::background::Titles;
use axmem_datasets::cluster::{self, Clusters};
use axmem_datasets::document::Document;
use axmem_datasets::eligibility::{self, DocumentSettings, IdHash, TokenDocument};
use axmem_datasets::files;
use axmem_datasets::near_duplicates::{self, NearDuplicate, NearSettings};
use axmem_datasets::table::{self, DocumentRow};
use axmem_datasets::tokenizer::Tokenizer;
use axmem_trainer::Published;
use serde_json::json;

use super::corpus::{BACKGROUND, CORPUS, redirects};
use super::{Context, weights};
use crate::exit::Failure;
use crate::experiment::{Bos, Documents, Experiment, TokenizerChoice, Weights, Windows};
use crate::plan::Stage;
use crate::store::PARTIAL;
use crate::weights::tokenizer;

/// Articles held at a time.
const CHUNK: usize = 1024;

/// Hands over the articles of an origin in their order, [`CHUNK`] at a time.
pub(super) fn articles(
    context: &Context<'_>,
    origin: &str,
    mut sink: impl FnMut(Vec<Document>) -> axmem_datasets::Result<()>,
) -> axmem_datasets::Result<()> {
    let mut waiting = Vec::with_capacity(CHUNK);
    table::scan(documents(context), |row: DocumentRow| {
        if row.origin == origin {
            waiting.push(row.into_document());
        }
        if waiting.len() == CHUNK {
            sink(mem::take(&mut waiting))?;
        }
        Ok(())
    })?;
    sink(waiting)
}

/// The table of all articles.
pub(super) fn documents(context: &Context<'_>) -> PathBuf {
    context.input(Stage::Corpus).join("documents.parquet")
}

/// The clusters of equal texts, of corpus and background.
pub(super) fn clusters(context: &Context<'_>) -> Result<Clusters> {
    let mut sources = Vec::new();
    for origin in [CORPUS, BACKGROUND] {
        let mut hashes = Vec::new();
        articles(context, origin, |chunk| {
            hashes.extend(cluster::hashes(&chunk));
            Ok(())
        })?;
        sources.push(hashes);
    }
    Ok(Clusters::of_hashes(sources)?)
}

pub(super) fn run(context: &Context<'_>) -> Result<()> {
    let experiment = context.experiment;
    let mut clusters = clusters(context)?;
    let tokenizer = match &experiment.tokenizer {
        TokenizerChoice::Bpe { vocab } => trained(context, &clusters, *vocab)?,
        TokenizerChoice::File { path, content } => {
            let tokenizer = Tokenizer::from_file(path)?;
            if content.as_deref() != Some(tokenizer.hash()) {
                context.store.forget_contents()?;
                return Err(Failure::data(format!(
                    "{path} has changed since the run began; run again to take it as it is now"
                )));
            }
            tokenizer
        }
        TokenizerChoice::Published => published(context)?,
    };
    let partial = context.folder.join(PARTIAL);
    files::create_dir_all(&partial)?;
    let cut = partial.join("tokens.parquet");
    let mut encoded = encode(context, &tokenizer, &cut)?;
    clusters.label(&mut encoded.windows, &encoded.hashes)?;
    let mut pairs = Vec::new();
    if let Some(near) = near(experiment) {
        let corpus = near_duplicates::Articles {
            ids: &encoded.articles,
            sketches: &encoded.sketches,
            documents: settings(&experiment.documents),
            read: &|names| named(context, names),
        };
        let windows = &mut encoded.windows;
        pairs = near_duplicates::join(&mut clusters, windows, &corpus, &tokenizer, &near)?;
        tell(&pairs, context);
    }
    table::write_with(context.folder.join("tokens.parquet"), |push| {
        let mut windows = encoded.windows.into_iter();
        table::scan(&cut, |row: TokenDocument| {
            let Some(mut window) = windows.next() else {
                return Ok(());
            };
            if window.eligible {
                window.ids = row.ids;
            }
            push(window)
        })
    })?;
    table::write(context.folder.join("near_duplicates.parquet"), &pairs)?;
    tokenizer.save(context.folder.join("tokenizer.json"))?;
    Ok(())
}

/// What near-copies are, if they are looked for.
fn near(experiment: &Experiment) -> Option<NearSettings> {
    experiment.documents.near_duplicates.map(Into::into)
}

/// What is held of a corpus that was encoded.
#[derive(Default)]
struct Encoded {
    /// Without their ids, which wait in a table of the same order.
    windows: Vec<TokenDocument>,
    hashes: Vec<IdHash>,
    articles: Vec<String>,
    sketches: Vec<Vec<u64>>,
}

/// Encodes the corpus and writes its windows into a table.
fn encode(context: &Context<'_>, tokenizer: &Tokenizer, table: &Path) -> Result<Encoded> {
    let settings = settings(&context.experiment.documents);
    let near = near(context.experiment);
    let sketch = |text: &[u32]| near.map(|near| near.sketch(text, settings.min_tokens));
    let mut encoded = Encoded::default();
    table::write_with(table, |push| {
        articles(context, CORPUS, |chunk| {
            let (windows, sketches) =
                eligibility::tokenize_with(&chunk, CORPUS, tokenizer, &settings, sketch)?;
            encoded.hashes.extend(eligibility::hashes(&windows));
            encoded.sketches.extend(sketches.into_iter().flatten());
            let ids = chunk.into_iter().map(|article| article.id);
            encoded.articles.extend(ids);
            for mut window in windows {
                push(window.clone())?;
                window.ids = Vec::new();
                encoded.windows.push(window);
            }
            Ok(())
        })
    })?;
    Ok(encoded)
}

/// The articles of the corpus with these ids.
fn named(context: &Context<'_>, names: &HashSet<&str>) -> axmem_datasets::Result<Vec<Document>> {
    let mut found = Vec::with_capacity(names.len());
    articles(context, CORPUS, |chunk| {
        let named = chunk.into_iter();
        found.extend(named.filter(|article| names.contains(article.id.as_str())));
        Ok(())
    })?;
    Ok(found)
}

/// A tokenizer trained on the background, as far as it is no text of the corpus.
fn trained(context: &Context<'_>, clusters: &Clusters, vocab: usize) -> Result<Tokenizer> {
    let (mut corpus, mut background) = (Vec::new(), Vec::new());
    articles(context, CORPUS, |chunk| {
        let named = chunk.into_iter();
        corpus.extend(named.map(|article| (article.id, article.title)));
        Ok(())
    })?;
    articles(context, BACKGROUND, |chunk| {
        background.extend(chunk);
        Ok(())
    })?;
    let titles = Titles::new(&redirects(context)?);
    let texts = unprobed(&corpus, &background, clusters, &titles)?;
    if texts.is_empty() {
        return Err(Failure::data(
            "tokenizer.bpe: no background text is left to train it on, since all of it is also in \
             the corpus; give another background.source",
        ));
    }
    let texts = texts.into_iter().map(|document| document.text.clone());
    Ok(Tokenizer::train_bpe(texts, vocab)?)
}

/// The tokenizer of the published models, which must be one.
fn published(context: &Context<'_>) -> Result<Tokenizer> {
    let mut first: Option<(&str, Tokenizer)> = None;
    for model in &context.experiment.models {
        let Weights::Published(published) = &model.weights else {
            return Err(Failure::usage("random weights bring no tokenizer"));
        };
        let found = weights::find(model, published, context.store, context.events)?;
        let own = tokenizer(&found.path, &Published::open(&found.path)?)?;
        match &first {
            None => first = Some((&model.name, own)),
            Some((name, shared)) if shared.hash() != own.hash() => {
                return Err(Failure::model(format!(
                    "models {name} and {} have different tokenizers, so the same document has other ids for each; make \
                     a ladder for each tokenizer, as experiments/threshold.yaml does with `matrix`",
                    model.name
                )));
            }
            Some(_) => {}
        }
    }
    let (_, tokenizer) = first.context("a study has a model")?;
    Ok(tokenizer)
}

/// Says how many near-copies there are, and that a cluster of them is too large to be one article.
fn tell(pairs: &[NearDuplicate], context: &Context<'_>) {
    let sizes = near_duplicates::sizes(pairs);
    let Some(&(cluster, largest)) = sizes.first() else {
        return;
    };
    let articles: usize = sizes.iter().map(|(_, size)| size).sum();
    let fields = json!({
        "stage": "tokens", "articles": articles, "clusters": sizes.len(), "largest": largest,
        "cluster": cluster,
    });
    let sentence = format!(
        "{articles} articles are near-copies of each other, in {} clusters of up to {largest} \
         articles",
        sizes.len()
    );
    context.events.tell("note", fields.clone(), &sentence);
    if largest > near_duplicates::GIANT {
        let sentence = format!(
            "warning: the near-copies of cluster {cluster} are {largest} articles; look at their \
             common text in near_duplicates.parquet, and raise documents.near_duplicates.overlap \
             if they are pages of one template"
        );
        context.events.tell("warning", fields, &sentence);
    }
}

/// The texts of the background that are no copy of an article of the corpus (id and title) and have no title of
/// one, redirects resolved: a tokenizer of the study sees none of an article that may be probed.
fn unprobed<'a>(
    corpus: &[(String, String)],
    background: &'a [Document],
    clusters: &Clusters,
    titles: &Titles,
) -> Result<Vec<&'a Document>> {
    let mut known = HashSet::new();
    let mut titled = HashSet::new();
    for (id, title) in corpus {
        known.insert(clusters.id(id)?.to_owned());
        titled.extend(titles.resolve(title));
    }
    let mut kept = Vec::new();
    for document in background {
        let named = titles.resolve(&document.title);
        if !known.contains(clusters.id(&document.id)?)
            && named.is_none_or(|title| !titled.contains(&title))
        {
            kept.push(document);
        }
    }
    Ok(kept)
}

pub(super) fn settings(documents: &Documents) -> DocumentSettings {
    DocumentSettings {
        tokens: documents.tokens,
        min_tokens: documents.min_tokens,
        bos: bos(documents.bos),
        windows: match documents.windows {
            Windows::First => eligibility::Windows::First,
            Windows::PerArticle(count) => eligibility::Windows::PerArticle(count),
            Windows::All => eligibility::Windows::All,
        },
    }
}

pub(super) fn bos(bos: Bos) -> eligibility::Bos {
    match bos {
        Bos::Always => eligibility::Bos::Always,
        Bos::Never => eligibility::Bos::Never,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tokenizer_sees_no_copy_and_no_title_of_an_article_of_the_corpus() {
        let document = |id: &str, title: &str, text: &str| Document {
            id: id.to_owned(),
            title: title.to_owned(),
            text: text.to_owned(),
            ..Document::default()
        };
        let corpus = [
            document("1", "United Kingdom", "one"),
            document("2", "Gaul", "two"),
        ];
        let background = [
            document("b/1", "Else", "other"),
            document("b/2", "A copy", "one"),
            document("b/3", "united_kingdom", "three"),
            document("b/4", "UK", "four"),
            document("b/5", "France", "five"),
            document("b/6", "", "six"),
        ];
        let redirects = [("UK", "United Kingdom#History"), ("Gaul", "France")];
        let redirects = redirects.map(|(from, to)| (from.to_owned(), to.to_owned()));
        let clusters = Clusters::of_texts(&[&corpus, &background]).unwrap();
        let titles = Titles::new(&redirects);
        let corpus = corpus.map(|article| (article.id, article.title));
        let kept = unprobed(&corpus, &background, &clusters, &titles).unwrap();
        let kept: Vec<&str> = kept.iter().map(|document| document.id.as_str()).collect();
        assert_eq!(kept, ["b/1", "b/6"]);
    }
}
