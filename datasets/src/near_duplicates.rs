//! Near-duplicates: articles that are edited copies of one another, and belong into one cluster.
//!
//! A *shingle* is a run of a few ids. A `MinHash` sketch of every article (the shingles whose keyed
//! hash falls into one of m equal parts of its range: the sketch mod m of Broder, 1997, "On the
//! resemblance and containment of documents", which sees a short text inside a long one too)
//! proposes pairs; the shingles themselves decide. Two articles are near-copies if of a window of
//! one, or of its whole text, at least the share `overlap` of the shingles is in the other's text.
//!
//! Shingles of templates must not link the pages that use one. A shingle in more than [`COMMON`]
//! of the compared articles is *common*: a pair needs `overlap` among its other shingles as well,
//! and these must be a quarter of the text. Only where so much is shared that little of its own is
//! left to a page (the middle between `overlap` and 1) a pair is linked whatever is common.
//!
//! Clusters are the components over decided pairs only; a proposal links nothing. The result
//! depends neither on the order of the articles nor on the number of threads, and does not change
//! with the machine.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use rayon::prelude::*;

use crate::cluster::Clusters;
use crate::document::Document;
use crate::eligibility::{self, DocumentSettings, TokenDocument, without_bos};
use crate::error::{Error, Result};
use crate::random::mix;
use crate::runs::{self, Runs};
use crate::tokenizer::Tokenizer;

/// Articles that may share a shingle before it counts as common.
pub const COMMON: usize = 10;

/// Articles of a cluster above which it is an alarm: a template, a list or a broken source.
pub const GIANT: usize = 20;

/// The most words of a matched text.
pub const MOST_WORDS: usize = 25;

/// Sketched shingles that the shortest window shares with its near-copies, on average. That fewer
/// than [`PROPOSED`] of so many are sketched has a probability below 2e-6.
const SKETCHED: f64 = 16.0;

/// Sketched shingles that propose a pair.
const PROPOSED: usize = 2;

/// Chooses the part of the hash's range that is sketched, any number.
const KEY: u64 = 0x6178_6d65_6d6e_6561;

/// What near-copies are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NearSettings {
    /// Ids of a shingle, at least 1.
    pub shingle: usize,
    /// Share of the shingles that makes a near-copy, above 0 and at most 1.
    pub overlap: f64,
}

/// Two articles of which one is a near-copy of the other, or holds one.
#[derive(Clone, Debug, PartialEq)]
pub struct NearDuplicate {
    /// The cluster of both.
    pub cluster: String,
    /// The article of the smaller id.
    pub first: String,
    /// The other article.
    pub second: String,
    /// The largest share of the shingles of a window, or of the whole text, of one that are in
    /// the other's text.
    pub share: f64,
    /// Ids of the longest run that both texts have.
    pub run: u32,
    /// Where it starts in the text of `first`, the beginning of sequence not counted.
    pub start: u32,
    /// The run as text, at most [`MOST_WORDS`] words.
    pub text: String,
}

/// Counts over the places of a text, each with the shingle that begins there.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    all: usize,
    shared: usize,
    /// Those whose shingle is not common.
    own: usize,
    own_shared: usize,
}

impl Counts {
    fn add(&mut self, shared: bool, common: bool) {
        self.all += 1;
        self.shared += usize::from(shared);
        self.own += usize::from(!common);
        self.own_shared += usize::from(shared && !common);
    }

    /// The share of the shingles that are shared.
    fn share(&self) -> f64 {
        self.shared as f64 / self.all.max(1) as f64
    }
}

impl NearSettings {
    /// Whether so much of a text is a near-copy of another.
    fn is_copy(&self, counts: &Counts) -> bool {
        let share = counts.share();
        let own = counts.own_shared as f64 / counts.own.max(1) as f64;
        share >= f64::midpoint(self.overlap, 1.0)
            || (share >= self.overlap && own >= self.overlap && 4 * counts.own >= counts.all)
    }

    /// The sketch of an article for a study whose shortest window has `shortest` ids: the hashes
    /// of its sketched shingles, rising.
    pub fn sketch(&self, text: &[u32], shortest: usize) -> Vec<u64> {
        let shingles = (shortest + 1).saturating_sub(self.shingle) as f64;
        let one_in = (shingles * self.overlap / SKETCHED).max(1.0) as u64;
        let limit = u64::MAX / one_in;
        let mut hashes: Vec<u64> = runs::hashes(text, self.shingle)
            .map(|(_, hash)| mix(hash ^ KEY))
            .filter(|&hash| hash <= limit)
            .collect();
        hashes.sort_unstable();
        hashes.dedup();
        hashes
    }
}

/// The articles of a corpus without their texts.
pub struct Articles<'a> {
    /// Their ids.
    pub ids: &'a [String],
    /// Their sketches ([`NearSettings::sketch`]).
    pub sketches: &'a [Vec<u64>],
    /// What a document is.
    pub documents: DocumentSettings,
    /// Gives the articles with these ids, in any order.
    pub read: &'a dyn Fn(&HashSet<&str>) -> Result<Vec<Document>>,
}

/// An article of a proposed pair: the ids of its text, and its eligible windows.
struct Compared {
    text: Vec<u32>,
    windows: Vec<Vec<u32>>,
}

/// Joins the clusters of near-copies among the articles that have an eligible window, and writes
/// the clusters of all windows again. The ids of `windows` are not looked at; the texts of proposed pairs are read again.
///
/// Gives the pairs that were decided to be near-copies, in the order of their ids.
///
/// # Errors
/// A text that cannot be read or encoded.
pub fn join(
    clusters: &mut Clusters,
    windows: &mut [TokenDocument],
    articles: &Articles<'_>,
    tokenizer: &Tokenizer,
    settings: &NearSettings,
) -> Result<Vec<NearDuplicate>> {
    let mut eligible: HashMap<&str, HashSet<&str>> = HashMap::new();
    for window in windows.iter().filter(|window| window.eligible) {
        let names = eligible.entry(&window.article).or_default();
        names.insert(&window.document);
    }
    let mut compared: Vec<usize> = (0..articles.ids.len())
        .filter(|&index| eligible.contains_key(articles.ids[index].as_str()))
        .collect();
    compared.sort_unstable_by_key(|&index| &articles.ids[index]);
    let proposed = propose(
        &compared
            .iter()
            .map(|&at| &*articles.sketches[at])
            .collect::<Vec<_>>(),
    );

    let involved: Vec<usize> = proposed
        .iter()
        .flat_map(|&(first, second)| [first, second])
        .collect::<BTreeSet<_>>()
        .into_iter()
        .collect();
    let name = |article: usize| articles.ids[compared[article]].as_str();
    let names: HashSet<&str> = involved.iter().map(|&article| name(article)).collect();
    let mut read = read(articles, &names, &eligible, tokenizer)?;
    let mut texts = Vec::with_capacity(involved.len());
    let mut cut = Vec::with_capacity(involved.len());
    for &article in &involved {
        let name = name(article);
        let article = read
            .remove(name)
            .ok_or_else(|| Error::data(format!("article {name} can't be read again")))?;
        texts.push(article.text);
        cut.push(article.windows);
    }
    let pieces: Vec<Vec<&[u32]>> = texts
        .iter()
        .zip(&cut)
        .map(|(text, windows)| windows.iter().chain([text]).map(Vec::as_slice).collect())
        .collect();
    let proposed: Vec<(usize, usize)> = proposed
        .iter()
        .map(|(first, second)| {
            let place = |article| involved.partition_point(|other| other < article);
            (place(first), place(second))
        })
        .collect();

    let mut found = Vec::new();
    for (first, second, share) in decide(&texts, &pieces, &proposed, settings) {
        let run = runs::longest(&[&texts[first]], &[&texts[second]])[0];
        let run = run.ok_or_else(|| Error::data("near-copies without a common id"))?;
        let ids = &texts[first][run.start..run.start + run.length];
        found.push(NearDuplicate {
            cluster: String::new(),
            first: name(involved[first]).to_owned(),
            second: name(involved[second]).to_owned(),
            share,
            run: run.length as u32,
            start: run.start as u32,
            text: excerpt(&tokenizer.decode(ids)?),
        });
    }
    for pair in &found {
        clusters.join(&pair.first, &pair.second)?;
    }
    clusters.name(windows)?;
    for pair in &mut found {
        clusters.id(&pair.first)?.clone_into(&mut pair.cluster);
    }
    Ok(found)
}

/// The articles of proposed pairs by their ids.
fn read(
    articles: &Articles<'_>,
    names: &HashSet<&str>,
    eligible: &HashMap<&str, HashSet<&str>>,
    tokenizer: &Tokenizer,
) -> Result<HashMap<String, Compared>> {
    let settings = articles.documents;
    let bos = settings.bos.id(tokenizer)?;
    let documents = if names.is_empty() {
        Vec::new()
    } else {
        (articles.read)(names)?
    };
    documents
        .into_par_iter()
        .map(|document| {
            let ids = tokenizer.encode(&document.text)?;
            let windows = eligibility::windows(&document, "", &ids, bos, &settings);
            let is_eligible = |window: &TokenDocument| {
                let names = eligible.get(document.id.as_str());
                names.is_some_and(|names| names.contains(window.document.as_str()))
            };
            let windows = windows.into_iter().filter(is_eligible);
            let article = Compared {
                windows: windows
                    .map(|window| without_bos(&window.ids, bos).to_vec())
                    .collect(),
                text: without_bos(&ids, bos).to_vec(),
            };
            Ok((document.id, article))
        })
        .collect()
}

/// The articles of each cluster with a near-duplicate, the largest cluster first.
pub fn sizes(pairs: &[NearDuplicate]) -> Vec<(&str, usize)> {
    let mut members: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for pair in pairs {
        let cluster = members.entry(&pair.cluster).or_default();
        cluster.extend([pair.first.as_str(), pair.second.as_str()]);
    }
    let mut sizes: Vec<(&str, usize)> = members
        .into_iter()
        .map(|(cluster, members)| (cluster, members.len()))
        .collect();
    sizes.sort_by_key(|&(_, size)| std::cmp::Reverse(size));
    sizes
}

/// Pairs of texts, by index, that share at least [`PROPOSED`] sketched shingles. Of the many that
/// share a common one each is paired with the next [`COMMON`] in the order of the texts: a group of
/// copies stays connected, and a template costs no square of its pages.
fn propose(sketches: &[&[u64]]) -> Vec<(usize, usize)> {
    let mut holders: Vec<(u64, u32)> = sketches
        .par_iter()
        .enumerate()
        .flat_map_iter(|(text, hashes)| hashes.iter().map(move |&hash| (hash, text as u32)))
        .collect();
    holders.par_sort_unstable();
    let mut pairs: Vec<(u32, u32)> = holders
        .par_chunk_by(|left, right| left.0 == right.0)
        .flat_map_iter(|group| {
            group.iter().enumerate().flat_map(move |(index, first)| {
                let later = group[index + 1..].iter().take(COMMON);
                later.map(|second| (first.1, second.1))
            })
        })
        .collect();
    pairs.par_sort_unstable();
    pairs
        .chunk_by(|left, right| left == right)
        .filter(|equal| equal.len() >= PROPOSED)
        .map(|equal| (equal[0].0 as usize, equal[0].1 as usize))
        .collect()
}

/// The pairs that are near-copies, each with the largest share of a piece of one that is in the
/// text of the other. `pieces` of a text are runs of it.
fn decide(
    texts: &[Vec<u32>],
    pieces: &[Vec<&[u32]>],
    proposed: &[(usize, usize)],
    settings: &NearSettings,
) -> Vec<(usize, usize, f64)> {
    // What shares too little can be told pair by pair. Hashes may only share more than their shingles.
    let sorted = |text: &[u32]| -> Vec<u64> {
        let hashes = runs::hashes(text, settings.shingle);
        let mut hashes: Vec<u64> = hashes.map(|(_, hash)| hash).collect();
        hashes.sort_unstable();
        hashes
    };
    let reaches = |pieces: &[&[u32]], other: &[u64]| {
        pieces.iter().any(|piece| {
            let mut counts = Counts::default();
            for (_, hash) in runs::hashes(piece, settings.shingle) {
                counts.add(other.binary_search(&hash).is_ok(), false);
            }
            counts.share() >= settings.overlap
        })
    };
    let close: Vec<(usize, usize)> = proposed
        .par_iter()
        .filter(|&&(first, second)| {
            reaches(&pieces[first], &sorted(&texts[second]))
                || reaches(&pieces[second], &sorted(&texts[first]))
        })
        .copied()
        .collect();

    // Every shingle of the others gets a number; then all is counted in numbers.
    let mut numbers: HashMap<&[u32], u32> = HashMap::new();
    let mut sets: HashMap<usize, Vec<u32>> = HashMap::new();
    for text in close.iter().flat_map(|&(first, second)| [first, second]) {
        sets.entry(text).or_insert_with(|| {
            let mut set = Vec::new();
            for shingle in texts[text].windows(settings.shingle) {
                let next = numbers.len() as u32;
                set.push(*numbers.entry(shingle).or_insert(next));
            }
            set.sort_unstable();
            set.dedup();
            set
        });
    }
    let mut holders = vec![0_u32; numbers.len()];
    for text in texts {
        let known = text.windows(settings.shingle);
        let known: HashSet<u32> = known
            .filter_map(|shingle| numbers.get(shingle).copied())
            .collect();
        for number in known {
            holders[number as usize] += 1;
        }
    }
    let measured = |pieces: &[&[u32]], other: &[u32]| {
        pieces.iter().fold((0.0_f64, false), |(most, copy), piece| {
            let mut counts = Counts::default();
            for shingle in piece.windows(settings.shingle) {
                let number = numbers[shingle];
                let common = holders[number as usize] as usize > COMMON;
                counts.add(other.binary_search(&number).is_ok(), common);
            }
            (most.max(counts.share()), copy || settings.is_copy(&counts))
        })
    };
    close
        .par_iter()
        .filter_map(|&(first, second)| {
            let (left, left_copy) = measured(&pieces[first], &sets[&second]);
            let (right, right_copy) = measured(&pieces[second], &sets[&first]);
            (left_copy || right_copy).then_some((first, second, left.max(right)))
        })
        .collect()
}

/// The first [`MOST_WORDS`] words of a text, with a sign where it was cut.
fn excerpt(text: &str) -> String {
    let mut words = text.split_whitespace();
    let kept: Vec<&str> = words.by_ref().take(MOST_WORDS).collect();
    let rest = if words.next().is_some() { " …" } else { "" };
    format!("{}{rest}", kept.join(" "))
}

/// Finds near-copies of documents of the buckets among texts that come one by one.
pub(crate) struct Nearby {
    settings: NearSettings,
    shingles: Runs,
}

impl Nearby {
    pub(crate) fn new(settings: NearSettings) -> Self {
        Self {
            settings,
            shingles: Runs::new(settings.shingle),
        }
    }

    /// Adds the ids of a text, without beginning of sequence. Texts are numbered from 0.
    pub(crate) fn add(&mut self, text: Vec<u32>) {
        self.shingles.add(text);
    }

    /// Prepares the search.
    pub(crate) fn seal(&mut self) {
        self.shingles.seal();
    }

    /// The added texts of whose shingles at least the share `overlap` is in `text`, in their order. Shingles that are common
    /// count as all others, since one text does not tell which are: no near-copy is missed, and a page that is mostly template is taken
    /// for one.
    pub(crate) fn held_in(&self, text: &[u32]) -> Vec<usize> {
        let mut held: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
        for (_, places) in self.shingles.shared(text) {
            for (added, place) in places {
                held.entry(added).or_default().insert(place);
            }
        }
        held.retain(|&added, places| {
            let length = self.shingles.texts()[added].len();
            let all = (length + 1).saturating_sub(self.settings.shingle);
            places.len() as f64 >= self.settings.overlap * all as f64
        });
        held.into_keys().collect()
    }

    /// The first added text of which `text` is a near-copy, or that is one of a part of `text`.
    pub(crate) fn first_copy(&self, text: &[u32]) -> Option<usize> {
        // By added text: its places with a shared shingle, and those of `text`, each with whether
        // the shingle is common.
        let mut shared: BTreeMap<usize, [BTreeMap<usize, bool>; 2]> = BTreeMap::new();
        for (start, places) in self.shingles.shared(text) {
            let places: Vec<(usize, usize)> = places.collect();
            let common = places.chunk_by(|left, right| left.0 == right.0).count() > COMMON;
            for (added, place) in places {
                let [theirs, ours] = shared.entry(added).or_default();
                theirs.insert(place, common);
                ours.insert(start, common);
            }
        }
        // A common shingle that is not shared can't be told from one of a text's own, so that a
        // few more texts pass as no copies than `decide` lets pass.
        let is_copy = |shared: &BTreeMap<usize, bool>, text: &[u32]| {
            let all = (text.len() + 1).saturating_sub(self.settings.shingle);
            let common = shared.values().filter(|&&common| common).count();
            self.settings.is_copy(&Counts {
                all,
                shared: shared.len(),
                own: all - common,
                own_shared: shared.len() - common,
            })
        };
        shared.into_iter().find_map(|(added, [theirs, ours])| {
            let copy = is_copy(&theirs, &self.shingles.texts()[added]) || is_copy(&ours, text);
            copy.then_some(added)
        })
    }
}
