//! Pages created after a snapshot: a second control, beside the one that is drawn like the treated documents.
//!
//! `MediaWiki` numbers pages in the order of their creation, so a page of a later dump whose number is above the largest
//! of an older snapshot was created after it. Older text can still stand there: a move leaves a redirect under a new
//! number at the old title, a merged or re-created page has a title that the snapshot knows, and text is copied. So
//! redirects are left out, titles that the snapshot knows (normalised, the redirects of both resolved), and windows that
//! share a run of [`RUN`](crate::background::RUN) ids with an article of the snapshot, with the study's own text or with each other, or are
//! near-copies of one.
//!
//! Pages are taken in keyed order until there are enough. Of the snapshot nothing but numbers and hashes of titles is kept; its
//! texts pass by in chunks.

mod compare;

use std::collections::{BTreeMap, HashMap};
use std::mem;

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::background::{Exclusion, PackedRow, Reason, TitleKey, Titles};
use crate::document::Document;
use crate::eligibility::{self, DocumentSettings, TokenDocument, Windows, without_bos};
use crate::error::{Error, Result};
use crate::near_duplicates::NearSettings;
use crate::random;
use crate::reader::Page;
use crate::runs;
use crate::tokenizer::Tokenizer;
use compare::{Compared, limit};

/// Where these documents come from, and the first part of their ids.
pub const ORIGIN: &str = "created_after";

/// The shortest run of ids that is looked for.
pub const SHORTEST_RUN: usize = runs::SEED;

/// Texts encoded and compared at a time; the result does not depend on it.
const CHUNK: usize = 256;

/// Windows compared with the snapshot in one pass beyond one and a half times those still missing.
const SPARE: usize = 16;

/// Reads the pages of a source from the start, as often as it is called.
pub type Pages<'a> = dyn Fn(&mut dyn FnMut(Page) -> Result<()>) -> Result<()> + 'a;

/// How many pages, and what of them is a document.
#[derive(Clone, Debug, PartialEq)]
pub struct CreatedAfterSettings {
    /// Documents, one of a page.
    pub size: usize,
    /// What a document is; the first window of a page is taken.
    pub documents: DocumentSettings,
    /// What a near-copy is; `None` looks for none.
    pub near: Option<NearSettings>,
    /// Seed of the keyed order.
    pub seed: u64,
}

/// The text that a study works with.
#[derive(Clone, Copy, Debug)]
pub struct Study<'a> {
    /// The documents of all buckets.
    pub documents: &'a [TokenDocument],
    /// Background and held-out text.
    pub background: &'a [PackedRow],
    /// Titles of the documents in it.
    pub titles: &'a HashMap<String, String>,
}

/// The longest run of ids that a drawn document shares with an article of the snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotRun {
    /// The document.
    pub document: String,
    /// Ids of the run; 0 if it shares none of [`SHORTEST_RUN`].
    pub run: u32,
    /// Where the run starts in the ids of the document's text, the beginning of sequence not counted.
    pub start: Option<u32>,
    /// The article; of several with equally long runs the first of the snapshot.
    pub other: Option<String>,
}

/// What [`draw`] gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drawn {
    /// The documents, in the order of the draw.
    pub documents: Vec<TokenDocument>,
    /// What each shares with the snapshot.
    pub shared: Vec<SnapshotRun>,
    /// The pages that were looked at up to the last document and left out, in the order of the draw.
    pub excluded: Vec<Exclusion>,
    /// What was read.
    pub counts: Counts,
}

/// What was read and looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// The largest page number of the snapshot.
    pub largest_id: u64,
    /// Pages of the snapshot.
    pub snapshot_pages: u64,
    /// Pages of the later dump.
    pub later_pages: u64,
    /// Articles of the later dump with a number up to the largest of the snapshot.
    pub older_articles: u64,
    /// Those of them that have the same number and title in the snapshot.
    pub same_articles: u64,
    /// Articles and redirects of the later dump with a number above it.
    pub pages_above: u64,
    /// Those of them that were looked at, up to the last document drawn.
    pub looked_at: u64,
}

/// Draws documents from the pages of `later` with a number above all of `snapshot`.
///
/// # Errors
/// A page without a number, no page above the largest of the snapshot, and fewer documents than are asked for.
pub fn draw(
    later: &Pages<'_>,
    snapshot: &Pages<'_>,
    study: &Study<'_>,
    tokenizer: &Tokenizer,
    settings: &CreatedAfterSettings,
) -> Result<Drawn> {
    let settings = CreatedAfterSettings {
        documents: DocumentSettings {
            windows: Windows::First,
            ..settings.documents
        },
        ..settings.clone()
    };
    let bos = settings.documents.bos.id(tokenizer)?;
    let mut older = Older::read(snapshot)?;
    let later = Later::read(later, &mut older, tokenizer, &settings.documents)?;
    let counts = Counts {
        largest_id: older.largest,
        snapshot_pages: older.pages,
        later_pages: later.pages,
        older_articles: later.older_articles,
        same_articles: later.same_articles,
        pages_above: later.candidates.len() as u64,
        looked_at: 0,
    };
    if later.candidates.is_empty() {
        return Err(Error::data(format!(
            "created_after.corpus has no article and no redirect with an id above {}, the largest of created_after.snapshot; \
             name a later dump of the same wiki",
            counts.largest_id
        )));
    }
    let known = Known::new(older, study);
    let draw = Draw {
        order: order(&later.candidates, settings.seed),
        candidates: &later.candidates,
        known: &known,
        snapshot,
        study: study.texts(bos),
        tokenizer,
        bos,
        settings: &settings,
    };
    draw.run(counts)
}

impl Study<'_> {
    /// Every text with the document it is of, without beginning of sequence.
    fn texts(&self, bos: Option<u32>) -> Vec<(String, Vec<u32>)> {
        let documents = self.documents.iter().map(|document| {
            let text = without_bos(&document.ids, bos);
            (document.document.clone(), text.to_vec())
        });
        let background = self.background.iter().flat_map(|row| row.pieces(bos));
        let background = background.map(|(document, text)| (document.to_owned(), text.to_vec()));
        documents.chain(background).collect()
    }

    /// Every title with the document it is of.
    fn titles(&self) -> impl Iterator<Item = (&str, &str)> {
        let documents = self.documents.iter();
        let of_documents =
            documents.map(|document| (document.title.as_str(), document.document.as_str()));
        let background = self.background.iter().flat_map(|row| &row.documents);
        let of_background = background
            .filter_map(|document| Some((self.titles.get(document)?.as_str(), document.as_str())));
        of_documents.chain(of_background)
    }
}

/// The number of a page.
fn number(page: &Page, field: &str) -> Result<u64> {
    let id = page.id();
    id.parse().map_err(|_| {
        Error::data(format!(
            "{field} has a page with the id {id:?}, which is no number: page ids of MediaWiki tell what was created after what"
        ))
    })
}

/// What is kept of the snapshot.
#[derive(Default)]
struct Older {
    largest: u64,
    pages: u64,
    titles: Titles,
    /// The first page of each title, articles before redirects, which may have the same but for its case.
    first: HashMap<TitleKey, Titled>,
}

/// Whether a page is a redirect, and its number.
type Titled = (bool, u64);

impl Older {
    fn read(snapshot: &Pages<'_>) -> Result<Self> {
        let mut older = Self::default();
        snapshot(&mut |page| {
            let number = number(&page, "created_after.snapshot")?;
            older.largest = older.largest.max(number);
            older.pages += 1;
            match &page {
                Page::Article(document) => older.know(&document.title, (false, number)),
                Page::Redirect { title, target, .. } => {
                    older.know(title, (true, number));
                    older.titles.redirect(title, target);
                }
                Page::Other(_) => {}
            }
            Ok(())
        })?;
        Ok(older)
    }

    fn know(&mut self, title: &str, page: Titled) {
        if let Some(key) = TitleKey::of(title) {
            let first = self.first.entry(key).or_insert(page);
            *first = page.min(*first);
        }
    }
}

/// A page with a number above the snapshot's.
struct Candidate {
    number: u64,
    title: String,
    kind: Kind,
}

enum Kind {
    /// With the title that it points to.
    Redirect(String),
    /// Eligible or too short.
    Article(TokenDocument),
}

impl Candidate {
    fn document(&self) -> String {
        name(self.number)
    }

    fn exclusion(&self, reason: Reason, other: String) -> Exclusion {
        Exclusion {
            document: self.document(),
            title: self.title.clone(),
            reason,
            other,
            start: None,
            ids: Vec::new(),
        }
    }
}

/// The document of a page.
fn name(number: u64) -> String {
    format!("{ORIGIN}/{number}")
}

/// What is kept of the later dump.
#[derive(Default)]
struct Later {
    pages: u64,
    older_articles: u64,
    same_articles: u64,
    candidates: Vec<Candidate>,
}

impl Later {
    /// Reads the dump; its redirects join the titles of the snapshot.
    fn read(
        pages: &Pages<'_>,
        older: &mut Older,
        tokenizer: &Tokenizer,
        settings: &DocumentSettings,
    ) -> Result<Self> {
        let mut later = Self::default();
        let mut waiting: Vec<(u64, Document)> = Vec::new();
        pages(&mut |page| {
            let number = number(&page, "created_after.corpus")?;
            let is_above = number > older.largest;
            later.pages += 1;
            match page {
                Page::Article(document) if is_above => waiting.push((number, document)),
                Page::Article(document) => {
                    let key = TitleKey::of(&document.title);
                    let known = key.and_then(|key| older.first.get(&key));
                    later.older_articles += 1;
                    later.same_articles += u64::from(known == Some(&(false, number)));
                }
                Page::Redirect { title, target, .. } => {
                    older.titles.redirect(&title, &target);
                    if is_above {
                        later.candidates.push(Candidate {
                            number,
                            title,
                            kind: Kind::Redirect(target),
                        });
                    }
                }
                Page::Other(_) => {}
            }
            if waiting.len() == CHUNK {
                later.add(mem::take(&mut waiting), tokenizer, settings)?;
            }
            Ok(())
        })?;
        later.add(waiting, tokenizer, settings)?;
        Ok(later)
    }

    /// Encodes articles and adds them to the candidates.
    fn add(
        &mut self,
        articles: Vec<(u64, Document)>,
        tokenizer: &Tokenizer,
        settings: &DocumentSettings,
    ) -> Result<()> {
        let (numbers, documents): (Vec<u64>, Vec<Document>) = articles
            .into_iter()
            .map(|(number, document)| {
                let id = name(number);
                (number, Document { id, ..document })
            })
            .unzip();
        let windows = eligibility::tokenize(&documents, ORIGIN, tokenizer, settings)?;
        let articles = numbers.into_iter().zip(windows);
        self.candidates
            .extend(articles.map(|(number, window)| Candidate {
                number,
                title: window.title.clone(),
                kind: Kind::Article(window),
            }));
        Ok(())
    }
}

/// The candidates in keyed order.
fn order(candidates: &[Candidate], seed: u64) -> Vec<usize> {
    let names: Vec<String> = candidates
        .iter()
        .map(|candidate| candidate.number.to_string())
        .collect();
    let names = names.iter().map(String::as_str);
    random::shuffled(seed, "axmem created after", names)
}

/// The titles of the snapshot and of the study, by their classes.
struct Known {
    titles: Titles,
    snapshot: HashMap<TitleKey, Titled>,
    study: HashMap<TitleKey, String>,
}

impl Known {
    fn new(older: Older, study: &Study<'_>) -> Self {
        let titles = older.titles;
        let mut snapshot = HashMap::with_capacity(older.first.len());
        for (key, page) in older.first {
            let first = snapshot.entry(titles.class(key)).or_insert(page);
            *first = page.min(*first);
        }
        let mut of_study = HashMap::new();
        for (title, document) in study.titles() {
            if let Some(class) = titles.resolve(title) {
                of_study.entry(class).or_insert_with(|| document.to_owned());
            }
        }
        Self {
            titles,
            snapshot,
            study: of_study,
        }
    }

    /// The page of the snapshot, or else the document of the study, that has this title.
    fn find(&self, title: &str) -> Option<String> {
        let class = self.titles.resolve(title)?;
        let number = self
            .snapshot
            .get(&class)
            .map(|(_, number)| number.to_string());
        number.or_else(|| self.study.get(&class).cloned())
    }
}

/// Something with its place in the order.
type Placed<T> = (usize, T);

struct Draw<'a> {
    order: Vec<usize>,
    candidates: &'a [Candidate],
    known: &'a Known,
    snapshot: &'a Pages<'a>,
    study: Vec<(String, Vec<u32>)>,
    tokenizer: &'a Tokenizer,
    bos: Option<u32>,
    settings: &'a CreatedAfterSettings,
}

impl<'a> Draw<'a> {
    /// Goes through the order, a pool of windows for each pass over the snapshot.
    fn run(&self, counts: Counts) -> Result<Drawn> {
        let size = self.settings.size;
        let mut documents: Vec<TokenDocument> = Vec::new();
        let mut shared = Vec::new();
        let mut excluded: Vec<Placed<Exclusion>> = Vec::new();
        let (mut next, mut last) = (0, 0);
        while documents.len() < size {
            let missing = size - documents.len();
            let wanted = missing + missing / 2 + SPARE;
            let pool = self.pool(&mut next, wanted, &mut excluded);
            if pool.is_empty() {
                return Err(self.too_few(documents.len(), &excluded));
            }
            let compared = self.compare(&pool, &documents)?;
            let mut taken: Vec<usize> = Vec::new();
            for (index, &(place, candidate, window)) in pool.iter().enumerate() {
                if let Some((reason, start, other)) = compared.refuse(index, &taken) {
                    let text = without_bos(&window.ids, self.bos);
                    let run = start.map_or(&[][..], |start| &text[start..start + limit(text)]);
                    let exclusion = Exclusion {
                        start: start.map(|start| start as u32),
                        ids: run.to_vec(),
                        ..candidate.exclusion(reason, other)
                    };
                    excluded.push((place, exclusion));
                } else if documents.len() < size {
                    taken.push(index);
                    documents.push(window.clone());
                    shared.push(compared.shared(index));
                    last = place;
                }
            }
        }
        excluded.retain(|(place, _)| *place < last);
        excluded.sort_by_key(|(place, _)| *place);
        let excluded = excluded
            .into_iter()
            .map(|(_, exclusion)| exclusion)
            .collect();
        Ok(Drawn {
            documents,
            shared,
            excluded,
            counts: Counts {
                looked_at: last as u64 + 1,
                ..counts
            },
        })
    }

    /// The next windows that nothing but their text can exclude, with their places.
    fn pool(
        &self,
        next: &mut usize,
        wanted: usize,
        excluded: &mut Vec<Placed<Exclusion>>,
    ) -> Vec<(usize, &'a Candidate, &'a TokenDocument)> {
        let mut pool = Vec::new();
        while *next < self.order.len() && pool.len() < wanted {
            let candidate = &self.candidates[self.order[*next]];
            let exclusion = match &candidate.kind {
                Kind::Redirect(target) => Some((Reason::Redirect, target.clone())),
                Kind::Article(window) => match self.known.find(&candidate.title) {
                    Some(other) => Some((Reason::Title, other)),
                    None if !window.eligible => Some((Reason::Short, String::new())),
                    None => {
                        pool.push((*next, candidate, window));
                        None
                    }
                },
            };
            if let Some((reason, other)) = exclusion {
                excluded.push((*next, candidate.exclusion(reason, other)));
            }
            *next += 1;
        }
        pool
    }

    /// Compares a pool with the snapshot, the study, the documents drawn before, and itself.
    fn compare(
        &self,
        pool: &[(usize, &Candidate, &TokenDocument)],
        drawn: &[TokenDocument],
    ) -> Result<Compared> {
        let named = |window: &TokenDocument| {
            let text = without_bos(&window.ids, self.bos).to_vec();
            (window.document.clone(), text)
        };
        let windows = pool.iter().map(|(_, _, window)| named(window));
        let mut compared = Compared::new(windows.collect(), self.settings.near);
        let mut waiting: Vec<Document> = Vec::new();
        (self.snapshot)(&mut |page| {
            if let Page::Article(document) = page {
                waiting.push(document);
            }
            if waiting.len() == CHUNK {
                compared.meet(&self.encode(&mem::take(&mut waiting))?);
            }
            Ok(())
        })?;
        compared.meet(&self.encode(&waiting)?);
        compared.end_of_snapshot();
        compared.meet(&self.study);
        compared.meet(&drawn.iter().map(named).collect::<Vec<_>>());
        compared.meet_each_other();
        Ok(compared)
    }

    fn encode(&self, articles: &[Document]) -> Result<Vec<(String, Vec<u32>)>> {
        let (tokenizer, bos) = (self.tokenizer, self.bos);
        let encode = |article: &Document| {
            let ids = tokenizer.encode(&article.text)?;
            Ok((article.id.clone(), without_bos(&ids, bos).to_vec()))
        };
        articles.par_iter().map(encode).collect()
    }

    fn too_few(&self, found: usize, excluded: &[Placed<Exclusion>]) -> Error {
        let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
        for (_, exclusion) in excluded {
            *reasons.entry(exclusion.reason.to_string()).or_default() += 1;
        }
        let reasons: Vec<String> = reasons
            .into_iter()
            .map(|(reason, pages)| format!("{reason}: {pages}"))
            .collect();
        Error::usage(format!(
            "created_after.size asks for {} documents, {found} are possible: created_after.corpus has {} articles and redirects with \
             ids above those of created_after.snapshot, of which {} are excluded ({}); lower it or name a later dump",
            self.settings.size,
            self.candidates.len(),
            excluded.len(),
            reasons.join(", ")
        ))
    }
}
