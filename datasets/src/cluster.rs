//! Clusters: the articles that must stay together, because they are copies of one another.
//!
//! Exact duplicates join here, by normalised text and by the ids of their windows; whatever else
//! makes two articles one ([`near_duplicates`](crate::near_duplicates)) joins through
//! [`Clusters::join`]. A cluster is named
//! by its smallest article id, compared as bytes. Of exact duplicates exactly one article
//! survives in a study; articles that only resemble each other all stay, in one bucket.

use std::collections::{BTreeMap, HashMap};

use rayon::prelude::*;
use sha2::{Digest, Sha256};
use unicode_normalization::UnicodeNormalization as _;

use crate::document::Document;
use crate::eligibility::{IdHash, TokenDocument};
use crate::error::{Error, Result};

/// Disjoint sets over `0..n`; the root of a set is its smallest member.
#[derive(Clone, Debug, Default)]
pub(crate) struct UnionFind {
    parent: Vec<usize>,
}

impl UnionFind {
    pub(crate) fn push(&mut self) -> usize {
        self.parent.push(self.parent.len());
        self.parent.len() - 1
    }

    pub(crate) fn find(&self, mut item: usize) -> usize {
        while self.parent[item] != item {
            item = self.parent[item];
        }
        item
    }

    pub(crate) fn join(&mut self, first: usize, second: usize) {
        let roots = [self.find(first), self.find(second)];
        let root = roots[0].min(roots[1]);
        // The members themselves too, which keeps later searches short.
        for item in [first, second, roots[0], roots[1]] {
            self.parent[item] = root;
        }
    }
}

/// SHA-256 of a text after NFKC, with runs of white space folded to one space.
pub type TextHash = [u8; 32];

/// The id of every article with the hash of its text.
pub fn hashes(articles: &[Document]) -> Vec<(String, TextHash)> {
    articles
        .par_iter()
        .map(|article| (article.id.clone(), hash_of_text(&article.text)))
        .collect()
}

/// Which articles belong together, over all sources of a study.
#[derive(Clone, Debug)]
pub struct Clusters {
    /// Article ids: the first source's in byte order, then the second's, and so on.
    articles: Vec<String>,
    /// By article.
    texts: Vec<TextHash>,
    index: HashMap<String, usize>,
    sets: UnionFind,
}

impl Clusters {
    /// [`Clusters::of_hashes`] of articles that are held whole.
    ///
    /// # Errors
    /// An id that occurs twice.
    pub fn of_texts(sources: &[&[Document]]) -> Result<Self> {
        Self::of_hashes(sources.iter().map(|source| hashes(source)).collect())
    }

    /// Joins the articles of all `sources` that have the same text after NFKC and folding of
    /// white space ([`hashes`]). The name of a cluster comes from the first source that has a member in it, so
    /// that adding a background does not rename the clusters of a corpus.
    ///
    /// # Errors
    /// An id that occurs twice, within a source or over two.
    pub fn of_hashes(mut sources: Vec<Vec<(String, TextHash)>>) -> Result<Self> {
        for source in &mut sources {
            source.par_sort_unstable();
        }
        let (articles, texts): (Vec<String>, Vec<TextHash>) = sources.into_iter().flatten().unzip();
        let mut index = HashMap::with_capacity(articles.len());
        let mut sets = UnionFind::default();
        let mut first_with = HashMap::with_capacity(articles.len());
        for (position, article) in articles.iter().enumerate() {
            if index.insert(article.clone(), position).is_some() {
                return Err(Error::data(format!(
                    "the document id {article:?} occurs twice; a source read twice, or two \
                     sources whose ids must be told apart"
                )));
            }
            sets.push();
            sets.join(
                position,
                *first_with.entry(texts[position]).or_insert(position),
            );
        }
        Ok(Self {
            articles,
            texts,
            index,
            sets,
        })
    }

    /// Makes two articles, with everything joined to them, one cluster.
    pub fn join(&mut self, first: &str, second: &str) -> Result<()> {
        let (first, second) = (self.position(first)?, self.position(second)?);
        self.sets.join(first, second);
        Ok(())
    }

    /// The cluster of an article, named by its smallest article id.
    pub fn id(&self, article: &str) -> Result<&str> {
        Ok(&self.articles[self.sets.find(self.position(article)?)])
    }

    /// Writes the cluster of every document, and leaves one survivor of exact duplicates: the
    /// smallest article id with an eligible window among those of equal text, then the smallest
    /// document id among those of equal ids ([`eligibility::hashes`](crate::eligibility::hashes) of the documents). The others
    /// become ineligible and name the survivor.
    pub fn label(&mut self, documents: &mut [TokenDocument], ids: &[IdHash]) -> Result<()> {
        self.refuse_equal_texts(documents)?;
        self.refuse_equal_windows(documents, ids)?;
        self.name(documents)
    }

    /// Writes the cluster of every document as it is now, after more was joined.
    pub fn name(&self, documents: &mut [TokenDocument]) -> Result<()> {
        for document in documents {
            self.id(&document.article)?
                .clone_into(&mut document.cluster);
        }
        Ok(())
    }

    fn refuse_equal_texts(&self, documents: &mut [TokenDocument]) -> Result<()> {
        let mut survivors: HashMap<TextHash, String> = HashMap::new();
        for document in documents.iter().filter(|document| document.eligible) {
            let survivor = survivors
                .entry(self.texts[self.position(&document.article)?])
                .or_insert_with(|| document.article.clone());
            if document.article < *survivor {
                survivor.clone_from(&document.article);
            }
        }
        for document in documents.iter_mut().filter(|document| document.eligible) {
            let survivor = &survivors[&self.texts[self.position(&document.article)?]];
            if document.article != *survivor {
                document.refuse(format!("exact duplicate of {survivor}"));
            }
        }
        Ok(())
    }

    fn refuse_equal_windows(
        &mut self,
        documents: &mut [TokenDocument],
        ids: &[IdHash],
    ) -> Result<()> {
        let mut same_ids: HashMap<IdHash, Vec<usize>> = HashMap::new();
        for (position, (document, ids)) in documents.iter().zip(ids).enumerate() {
            if document.eligible {
                same_ids.entry(*ids).or_default().push(position);
            }
        }
        // By survivor, so that the joins do not follow the order of a hash map.
        let copies: BTreeMap<usize, Vec<usize>> = same_ids
            .into_values()
            .filter(|group| group.len() > 1)
            .map(|mut group| {
                group.sort_by_key(|&position| &documents[position].document);
                (group[0], group.split_off(1))
            })
            .collect();
        for (survivor, group) in copies {
            let kept = documents[survivor].article.clone();
            let reason = format!("exact duplicate of {}", documents[survivor].document);
            for position in group {
                self.join(&kept, &documents[position].article)?;
                documents[position].refuse(reason.clone());
            }
        }
        Ok(())
    }

    fn position(&self, article: &str) -> Result<usize> {
        self.index.get(article).copied().ok_or_else(|| {
            Error::data(format!(
                "the document id {article:?} is in none of the sources that were clustered"
            ))
        })
    }
}

fn hash_of_text(text: &str) -> TextHash {
    let mut hasher = Sha256::new();
    let normal: String = text.nfkc().collect();
    for word in normal.split_whitespace() {
        hasher.update(word);
        hasher.update(b" ");
    }
    hasher.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(id: &str, text: &str) -> Document {
        Document {
            id: id.to_owned(),
            text: text.to_owned(),
            ..Document::default()
        }
    }

    #[test]
    fn equal_texts_join_under_the_smallest_id_of_the_first_source() {
        let corpus = [document("b", "one  two"), document("c", "three")];
        let background = [
            document("a", "one\ntwo "),
            document("d", "\u{fb01}ve"),
            document("e", "five"),
        ];
        let clusters = Clusters::of_texts(&[&corpus, &background]).unwrap();
        assert_eq!(clusters.id("a").unwrap(), "b");
        assert_eq!(clusters.id("b").unwrap(), "b");
        assert_eq!(clusters.id("c").unwrap(), "c");
        assert_eq!(clusters.id("e").unwrap(), "d");
    }

    #[test]
    fn an_id_that_occurs_twice_is_refused() {
        let twice = [document("x", "one"), document("x", "two")];
        let error = Clusters::of_texts(&[&twice]).unwrap_err();
        assert!(error.to_string().contains("\"x\" occurs twice"), "{error}");
    }

    #[test]
    fn joining_is_transitive() {
        let corpus = ["d", "c", "b", "a"].map(|id| document(id, id));
        let mut clusters = Clusters::of_texts(&[&corpus]).unwrap();
        clusters.join("d", "c").unwrap();
        clusters.join("b", "c").unwrap();
        assert_eq!(clusters.id("d").unwrap(), "b");
        assert_eq!(clusters.id("a").unwrap(), "a");
        assert!(clusters.join("a", "z").is_err());
    }
}
