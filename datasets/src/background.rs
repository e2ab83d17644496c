//! Background and held-out rows: text that every arm trains on, text that none trains on, and
//! the proof that neither holds a document of a bucket.
//!
//! A candidate is excluded when it shares a cluster, a title (normalised, redirects resolved) or
//! a run of [`RUN`] ids with a bucket, or is a near-copy of a document of one; every exclusion is
//! listed with the document it collides with. Held-out documents are drawn first, and the
//! background keeps clear of them by the same rules. Candidates are taken in keyed order and encoded only until the rows are full.

mod pack;
mod titles;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::str::FromStr;

use rayon::prelude::*;

pub use pack::{MIN_PIECE, PackedRow};
pub use titles::{TitleKey, Titles, normalised_title};

use crate::eligibility::{TokenDocument, without_bos};
use crate::error::{Error, Result};
use crate::near_duplicates::{NearSettings, Nearby};
use crate::random;
use crate::runs::Runs;
use pack::Packer;

/// The length in ids of a run that two documents may not share.
pub const RUN: usize = 50;

/// Candidates read at a time: first so many, then twice as many each time up to the second number. The result does not
/// depend on them; the texts of a larger pool are not held, and are passed over once for each chunk.
const CHUNK: [usize; 2] = [1024, 16 * 1024];

/// Gives the ids of the whole texts of candidates, named by their places in the pool, in that order.
pub type Encode<'a> = dyn Fn(&[usize]) -> Result<Vec<Vec<u32>>> + 'a;

/// A document that may become background or held-out text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Its id.
    pub document: String,
    /// Its title; an empty one collides with nothing.
    pub title: String,
    /// Its cluster, over all sources ([`crate::cluster::Clusters::id`]).
    pub cluster: String,
}

/// How much background, in which rows.
#[derive(Clone, Debug, PartialEq)]
pub struct BackgroundSettings {
    /// Rows of background.
    pub rows: usize,
    /// The most ids of one row.
    pub row_tokens: usize,
    /// The id put before every document and piece, if the policy wants one.
    pub bos: Option<u32>,
    /// Held-out documents.
    pub held_out: usize,
    /// What a near-copy is; `None` looks for none.
    pub near: Option<NearSettings>,
    /// Seed of the keyed order.
    pub seed: u64,
}

/// Why a candidate may not be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// A member of its cluster is in a bucket or held out.
    Cluster,
    /// An article of that title, or redirected to it or from it, is.
    Title,
    /// A run of [`RUN`] of its ids is.
    Run,
    /// A document that it is a near-copy of is.
    NearCopy,
    /// It only points to another page.
    Redirect,
    /// It has fewer ids than a document of the study needs.
    Short,
}

impl Reason {
    const ALL: [Self; 6] = [
        Self::Cluster,
        Self::Title,
        Self::Run,
        Self::NearCopy,
        Self::Redirect,
        Self::Short,
    ];
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cluster => f.write_str("cluster"),
            Self::Title => f.write_str("title"),
            Self::Run => write!(f, "run of {RUN} ids"),
            Self::NearCopy => f.write_str("near-copy"),
            Self::Redirect => f.write_str("redirect"),
            Self::Short => f.write_str("too short"),
        }
    }
}

impl FromStr for Reason {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::ALL
            .into_iter()
            .find(|reason| reason.to_string() == text)
            .ok_or_else(|| Error::data(format!("unknown reason of exclusion {text:?}")))
    }
}

/// A candidate that was left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exclusion {
    /// The candidate.
    pub document: String,
    /// Its title.
    pub title: String,
    /// Why.
    pub reason: Reason,
    /// The document that it collides with, the title that a redirect points to, or nothing.
    pub other: String,
    /// For a shared run: where it starts in the ids of the candidate's text, the beginning of
    /// sequence not counted.
    pub start: Option<u32>,
    /// For a shared run: its ids, so that a reader can see what was shared.
    pub ids: Vec<u32>,
}

/// What [`build`] gives.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Background {
    /// The background, numbered from 0 in the order of use.
    pub rows: Vec<PackedRow>,
    /// The held-out text, numbered apart.
    pub held_out: Vec<PackedRow>,
    /// The candidates that were looked at and left out, in keyed order.
    pub excluded: Vec<Exclusion>,
}

/// Draws held-out documents and background rows from `pool`.
///
/// `buckets` are the documents of all buckets, control included; `redirects` are pairs of titles (from, to).
/// Articles of the buckets themselves are passed over without being listed.
///
/// Fails with the number that is possible when the pool does not fill the rows or the held-out
/// documents.
pub fn build(
    pool: &[Candidate],
    encode: &Encode<'_>,
    buckets: &[&TokenDocument],
    redirects: &[(String, String)],
    settings: &BackgroundSettings,
) -> Result<Background> {
    if settings.row_tokens < MIN_PIECE {
        return Err(Error::usage(format!(
            "background rows of {} ids are too short: no piece under {MIN_PIECE} ids is used",
            settings.row_tokens
        )));
    }
    let articles: HashSet<&str> = buckets
        .iter()
        .map(|document| document.article.as_str())
        .collect();
    let order: Vec<usize> = random::shuffled(
        settings.seed,
        "axmem background",
        pool.iter().map(|candidate| candidate.document.as_str()),
    )
    .into_iter()
    .filter(|&index| !articles.contains(pool[index].document.as_str()))
    .collect();

    let mut barrier = Barrier::new(Titles::new(redirects), settings.near);
    for document in buckets {
        let text = without_bos(&document.ids, settings.bos).to_vec();
        barrier.add(&document.document, &document.cluster, &document.title, text);
    }
    barrier.seal();
    let mut draw = Draw {
        pool,
        encode,
        bos: settings.bos,
        order: &order,
        next: 0,
        chunk: CHUNK[0],
        excluded: Vec::new(),
    };

    let mut held_out = Packer::new(settings.row_tokens, settings.bos, usize::MAX);
    let mut held_documents = Vec::new();
    if settings.held_out > 0 {
        draw.each(&barrier, |candidate, text| {
            if held_out.push(&candidate.document, &text) {
                held_documents.push((candidate, text));
            }
            held_documents.len() < settings.held_out
        })?;
    }
    if held_documents.len() < settings.held_out {
        return Err(too_few(
            "held_out",
            settings.held_out,
            "documents",
            held_documents.len(),
            &draw,
        ));
    }
    for (candidate, text) in held_documents {
        barrier.add(
            &candidate.document,
            &candidate.cluster,
            &candidate.title,
            text,
        );
    }
    barrier.seal();

    let mut rows = Packer::new(settings.row_tokens, settings.bos, settings.rows);
    if settings.rows > 0 {
        draw.each(&barrier, |candidate, text| {
            rows.push(&candidate.document, &text);
            !rows.is_full()
        })?;
    }
    let rows = rows.finish(false);
    if rows.len() < settings.rows {
        return Err(too_few("rows", settings.rows, "rows", rows.len(), &draw));
    }
    Ok(Background {
        rows,
        held_out: held_out.finish(true),
        excluded: draw.excluded,
    })
}

fn too_few(setting: &str, asked: usize, unit: &str, possible: usize, draw: &Draw) -> Error {
    Error::usage(format!(
        "background.{setting} asks for {asked} {unit}, {possible} are possible: the source has {} \
         documents outside the buckets, of which {} share a cluster, a title or a run of {RUN} ids \
         with a bucket or the held-out text, or are near-copies of it; lower it or name a larger source",
        draw.order.len(),
        draw.excluded.len()
    ))
}

/// Goes through the pool in keyed order, once.
struct Draw<'a> {
    pool: &'a [Candidate],
    encode: &'a Encode<'a>,
    bos: Option<u32>,
    order: &'a [usize],
    next: usize,
    chunk: usize,
    excluded: Vec<Exclusion>,
}

impl<'a> Draw<'a> {
    /// Gives the next candidates that pass the barrier, with their ids, to `take` until it
    /// answers false or the pool ends.
    fn each(
        &mut self,
        barrier: &Barrier,
        mut take: impl FnMut(&'a Candidate, Vec<u32>) -> bool,
    ) -> Result<()> {
        while self.next < self.order.len() {
            let end = self.order.len().min(self.next + self.chunk);
            let order = &self.order[self.next..end];
            self.chunk = CHUNK[1].min(2 * self.chunk);
            let refused: Vec<Option<Exclusion>> = order
                .par_iter()
                .map(|&index| barrier.refuse_name(&self.pool[index]))
                .collect();
            let passed = order.iter().zip(&refused);
            let passed: Vec<usize> = passed
                .filter(|(_, refused)| refused.is_none())
                .map(|(&index, _)| index)
                .collect();
            let examined: Vec<std::result::Result<Vec<u32>, Exclusion>> = (self.encode)(&passed)?
                .into_par_iter()
                .zip(&passed)
                .map(|(ids, &index)| {
                    let text = without_bos(&ids, self.bos).to_vec();
                    barrier
                        .refuse_text(&self.pool[index], &text)
                        .map_or(Ok(text), Err)
                })
                .collect();
            let mut examined = examined.into_iter();
            let mut more = true;
            for refused in refused {
                let candidate = &self.pool[self.order[self.next]];
                self.next += 1;
                let result = refused.map_or_else(|| examined.next(), |refused| Some(Err(refused)));
                match result {
                    Some(Err(exclusion)) => self.excluded.push(exclusion),
                    Some(Ok(text)) => more = take(candidate, text),
                    None => {}
                }
                if !more {
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}

/// What no further document may share with the documents added so far.
struct Barrier {
    titles: Titles,
    clusters: HashMap<String, String>,
    titled: HashMap<TitleKey, String>,
    documents: Vec<String>,
    runs: Runs,
    near: Option<Nearby>,
}

impl Barrier {
    fn new(titles: Titles, near: Option<NearSettings>) -> Self {
        Self {
            titles,
            clusters: HashMap::new(),
            titled: HashMap::new(),
            documents: Vec::new(),
            runs: Runs::new(RUN),
            near: near.map(Nearby::new),
        }
    }

    fn add(&mut self, document: &str, cluster: &str, title: &str, text: Vec<u32>) {
        let name = || document.to_owned();
        self.clusters.entry(cluster.to_owned()).or_insert_with(name);
        if let Some(title) = self.titles.resolve(title) {
            self.titled.entry(title).or_insert_with(name);
        }
        self.documents.push(name());
        if let Some(near) = &mut self.near {
            near.add(text.clone());
        }
        self.runs.add(text);
    }

    /// Prepares the search; to be called after the last of a group of [`Barrier::add`].
    fn seal(&mut self) {
        self.runs.seal();
        if let Some(near) = &mut self.near {
            near.seal();
        }
    }

    fn refuse_name(&self, candidate: &Candidate) -> Option<Exclusion> {
        let titled = || self.titled.get(&self.titles.resolve(&candidate.title)?);
        let (reason, other) = match self.clusters.get(&candidate.cluster) {
            Some(other) => (Reason::Cluster, other),
            None => (Reason::Title, titled()?),
        };
        Some(Exclusion {
            document: candidate.document.clone(),
            title: candidate.title.clone(),
            reason,
            other: other.clone(),
            start: None,
            ids: Vec::new(),
        })
    }

    fn refuse_text(&self, candidate: &Candidate, text: &[u32]) -> Option<Exclusion> {
        let run = self.runs.first_shared(text);
        let (reason, other) = match run {
            Some((_, other)) => (Reason::Run, other),
            None => (Reason::NearCopy, self.near.as_ref()?.first_copy(text)?),
        };
        Some(Exclusion {
            document: candidate.document.clone(),
            title: candidate.title.clone(),
            reason,
            other: self.documents[other].clone(),
            start: run.map(|(start, _)| start as u32),
            ids: run.map_or_else(Vec::new, |(start, _)| text[start..start + RUN].to_vec()),
        })
    }
}
