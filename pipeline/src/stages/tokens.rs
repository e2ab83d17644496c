//! `tokens`: the tokenizer, and every article of the corpus as token ids with its eligibility.

use std::collections::HashSet;

use anyhow::Result;
use axmem_datasets::background::normalised_title;
use axmem_datasets::cluster::Clusters;
use axmem_datasets::document::Document;
use axmem_datasets::eligibility::{self, DocumentSettings};
use axmem_datasets::table::{self, DocumentRow};
use axmem_datasets::tokenizer::Tokenizer;

use super::Context;
use super::corpus::CORPUS;
use crate::exit::Failure;
use crate::experiment::{Bos, Documents, TokenizerChoice, Windows};
use crate::plan::Stage;

/// Articles by origin: corpus, background.
pub(super) fn documents(context: &Context<'_>) -> Result<(Vec<Document>, Vec<Document>)> {
    let (mut corpus, mut background) = (Vec::new(), Vec::new());
    table::scan(
        context.input(Stage::Corpus).join("documents.parquet"),
        |row: DocumentRow| {
            if row.origin == CORPUS {
                corpus.push(row.into_document());
            } else {
                background.push(row.into_document());
            }
            Ok(())
        },
    )?;
    Ok((corpus, background))
}

pub(super) fn run(context: &Context<'_>) -> Result<()> {
    let experiment = context.experiment;
    let (corpus, background) = documents(context)?;
    let tokenizer = match &experiment.tokenizer {
        TokenizerChoice::Bpe { vocab } => train_bpe(&corpus, &background, *vocab)?,
        TokenizerChoice::File { path, .. } => Tokenizer::from_file(path)?,
        TokenizerChoice::Published => {
            return Err(Failure::model(
                "the tokenizer of a published model can't be fetched by this version; give \
                 `tokenizer: { file: PATH }` with its tokenizer.json",
            ));
        }
    };
    let settings = settings(&experiment.documents);
    let mut tokens = eligibility::tokenize(&corpus, CORPUS, &tokenizer, &settings)?;
    let mut clusters = Clusters::of_texts(&[&corpus, &background])?;
    clusters.label(&mut tokens)?;
    table::write(context.folder.join("tokens.parquet"), &tokens)?;
    tokenizer.save(context.folder.join("tokenizer.json"))?;
    Ok(())
}

/// A tokenizer of the study sees background text only, and none of an article that may be probed.
fn train_bpe(corpus: &[Document], background: &[Document], vocab: usize) -> Result<Tokenizer> {
    let probed: HashSet<String> = corpus
        .iter()
        .map(|document| normalised_title(&document.title))
        .collect();
    let texts = background
        .iter()
        .filter(|document| {
            document.title.is_empty() || !probed.contains(&normalised_title(&document.title))
        })
        .map(|document| document.text.clone());
    Ok(Tokenizer::train_bpe(texts, vocab)?)
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
