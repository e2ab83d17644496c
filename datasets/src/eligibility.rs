//! Articles to token documents: one whole tokenisation each, cut into windows, with a reason for
//! every window that cannot be used.
//!
//! A text is encoded once and its ids are sliced; no piece of a text is ever encoded by itself,
//! since a piece has other ids alone than inside the whole. Ineligible documents stay in the
//! list, so that a study can say what it left out and nothing is silently replaced.

use rayon::prelude::*;
use sha2::{Digest as _, Sha256};

use crate::document::Document;
use crate::error::{Error, Result};
use crate::tokenizer::Tokenizer;

/// Whether every document begins with the beginning-of-sequence id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bos {
    /// One such id before every window; it counts within `tokens` and `min_tokens`.
    Always,
    /// The ids of the text alone.
    Never,
}

impl Bos {
    /// The id to put before each window: `None` under [`Bos::Never`], an error if the policy
    /// needs an id that the tokenizer does not have.
    pub fn id(self, tokenizer: &Tokenizer) -> Result<Option<u32>> {
        match (self, tokenizer.bos()) {
            (Self::Never, _) => Ok(None),
            (Self::Always, Some(id)) => Ok(Some(id)),
            (Self::Always, None) => Err(Error::usage(
                "documents.bos is `always`, but the tokenizer has no beginning-of-sequence id; \
                 set documents.bos to `never` or use another tokenizer",
            )),
        }
    }
}

/// How many windows are cut from one article.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Windows {
    /// The beginning of the article; the document is named as the article.
    First,
    /// The first so many consecutive windows, named `ARTICLE#0`, `ARTICLE#1`, ...
    PerArticle(usize),
    /// All consecutive windows, named likewise.
    All,
}

/// What a document is. Both lengths are in ids and include the beginning-of-sequence id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DocumentSettings {
    /// Ids of a training row; longer documents are cut to it.
    pub tokens: usize,
    /// Shorter documents are ineligible.
    pub min_tokens: usize,
    /// The beginning-of-sequence policy.
    pub bos: Bos,
    /// The windows of an article.
    pub windows: Windows,
}

impl DocumentSettings {
    fn check(&self) -> Result<()> {
        // A row with a beginning of sequence needs a second id to have anything to predict.
        let smallest = if self.bos == Bos::Always { 2 } else { 1 };
        if self.tokens < smallest {
            return Err(Error::usage(format!(
                "documents.tokens is {}, it must be at least {smallest}",
                self.tokens
            )));
        }
        if self.min_tokens > self.tokens {
            return Err(Error::usage(format!(
                "documents.min_tokens ({}) is larger than documents.tokens ({}), so no document \
                 could be used",
                self.min_tokens, self.tokens
            )));
        }
        if self.windows == Windows::PerArticle(0) {
            return Err(Error::usage(
                "documents.windows.per_article must be at least 1",
            ));
        }
        Ok(())
    }
}

/// One window of an article, as ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenDocument {
    /// The article's id for `windows: first`, else `ARTICLE#w` with w counted from 0.
    pub document: String,
    /// The id of the article.
    pub article: String,
    /// The title of the article.
    pub title: String,
    /// The id of the cluster; the article's own until [`crate::cluster::Clusters::label`].
    pub cluster: String,
    /// Where the article comes from.
    pub origin: String,
    /// The cut ids, beginning of sequence included; empty if not eligible.
    pub ids: Vec<u32>,
    /// Ids of the whole article before cutting, with one beginning of sequence under `always`.
    pub length: usize,
    /// Whether the document may go into a bucket.
    pub eligible: bool,
    /// Why not, if not.
    pub reason: Option<String>,
}

impl TokenDocument {
    /// Takes the document out of the study and says why.
    pub(crate) fn refuse(&mut self, reason: String) {
        self.ids = Vec::new();
        self.eligible = false;
        self.reason = Some(reason);
    }
}

/// SHA-256 of the ids of a document, by which equal windows are found.
pub type IdHash = [u8; 32];

/// The hash of the ids of every document.
pub fn hashes(documents: &[TokenDocument]) -> Vec<IdHash> {
    let hash = |document: &TokenDocument| {
        let mut hasher = Sha256::new();
        for id in &document.ids {
            hasher.update(id.to_le_bytes());
        }
        hasher.finalize().into()
    };
    documents.par_iter().map(hash).collect()
}

/// Encodes every article whole and cuts its windows, in the order of the input. Every article
/// gives at least one entry, eligible or not.
pub fn tokenize(
    documents: &[Document],
    origin: &str,
    tokenizer: &Tokenizer,
    settings: &DocumentSettings,
) -> Result<Vec<TokenDocument>> {
    let (windows, _) = tokenize_with(documents, origin, tokenizer, settings, |_| ())?;
    Ok(windows)
}

/// As [`tokenize`], with what `look` makes of the ids of each whole article, the beginning of
/// sequence not among them, in the order of the articles.
pub fn tokenize_with<T: Send>(
    documents: &[Document],
    origin: &str,
    tokenizer: &Tokenizer,
    settings: &DocumentSettings,
    look: impl Fn(&[u32]) -> T + Sync,
) -> Result<(Vec<TokenDocument>, Vec<T>)> {
    settings.check()?;
    let bos = settings.bos.id(tokenizer)?;
    let encoded: Vec<Result<(Vec<TokenDocument>, T)>> = documents
        .par_iter()
        .map(|document| {
            let ids = tokenizer.encode(&document.text)?;
            let seen = look(without_bos(&ids, bos));
            Ok((windows(document, origin, &ids, bos, settings), seen))
        })
        .collect();
    let mut windows = Vec::with_capacity(documents.len());
    let mut looks = Vec::with_capacity(documents.len());
    for article in encoded {
        let (cut, seen) = article?;
        windows.extend(cut);
        looks.push(seen);
    }
    Ok((windows, looks))
}

/// The ids of a text without a beginning of sequence, should the tokenizer have put one there.
pub(crate) fn without_bos(ids: &[u32], bos: Option<u32>) -> &[u32] {
    match (bos, ids.split_first()) {
        (Some(bos), Some((&first, rest))) if first == bos => rest,
        _ => ids,
    }
}

/// The windows of one article from the ids of its whole text.
pub(crate) fn windows(
    document: &Document,
    origin: &str,
    whole: &[u32],
    bos: Option<u32>,
    settings: &DocumentSettings,
) -> Vec<TokenDocument> {
    let text = without_bos(whole, bos);
    let extra = usize::from(bos.is_some());
    let length = text.len() + extra;
    let room = settings.tokens - extra;
    let count = match settings.windows {
        Windows::First => 1,
        Windows::PerArticle(count) => count.min(text.len().div_ceil(room)).max(1),
        Windows::All => text.len().div_ceil(room).max(1),
    };
    (0..count)
        .map(|window| {
            let start = (window * room).min(text.len());
            let piece = &text[start..(start + room).min(text.len())];
            let ids: Vec<u32> = bos.into_iter().chain(piece.iter().copied()).collect();
            let mut cut = TokenDocument {
                document: match settings.windows {
                    Windows::First => document.id.clone(),
                    Windows::PerArticle(_) | Windows::All => format!("{}#{window}", document.id),
                },
                article: document.id.clone(),
                title: document.title.clone(),
                cluster: document.id.clone(),
                origin: origin.to_owned(),
                ids,
                length,
                eligible: true,
                reason: None,
            };
            let found = cut.ids.len();
            if found < settings.min_tokens {
                let place = if window == 0 { "" } else { "last piece: " };
                cut.refuse(format!(
                    "{place}{found} ids, {} needed",
                    settings.min_tokens
                ));
            } else if piece.is_empty() {
                cut.refuse("no text".to_owned());
            }
            cut
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(whole: &[u32], bos: Option<u32>, settings: DocumentSettings) -> Vec<TokenDocument> {
        let document = Document {
            id: "7".to_owned(),
            ..Document::default()
        };
        windows(&document, "test", whole, bos, &settings)
    }

    fn settings(windows: Windows) -> DocumentSettings {
        DocumentSettings {
            tokens: 4,
            min_tokens: 3,
            bos: Bos::Always,
            windows,
        }
    }

    #[test]
    fn t02_a_beginning_of_sequence_is_never_doubled() {
        let [first] = &cut(&[0, 5, 6, 7, 8], Some(0), settings(Windows::First))[..] else {
            panic!("one window was asked for");
        };
        assert_eq!(first.ids, [0, 5, 6, 7]);
        assert_eq!(first.length, 5);
    }

    #[test]
    fn windows_follow_each_other_and_a_short_last_piece_is_refused() {
        let all = cut(&[1, 2, 3, 4, 5, 6, 7], Some(0), settings(Windows::All));
        let names: Vec<_> = all.iter().map(|window| window.document.as_str()).collect();
        assert_eq!(names, ["7#0", "7#1", "7#2"]);
        assert_eq!(all[0].ids, [0, 1, 2, 3]);
        assert_eq!(all[1].ids, [0, 4, 5, 6]);
        assert_eq!(
            all[2].reason.as_deref(),
            Some("last piece: 2 ids, 3 needed")
        );
        assert!(all[2].ids.is_empty() && !all[2].eligible);
        assert!(all.iter().all(|window| window.length == 8));

        let two = cut(&[1; 100], Some(0), settings(Windows::PerArticle(2)));
        assert_eq!(two.len(), 2);
    }

    #[test]
    fn an_empty_article_is_listed() {
        for kind in [Windows::First, Windows::All, Windows::PerArticle(3)] {
            let listed = cut(&[], Some(0), settings(kind));
            assert_eq!(listed.len(), 1);
            assert_eq!(listed[0].reason.as_deref(), Some("1 ids, 3 needed"));
        }
    }
}
