//! The documents of an audit as probes: encoded once and whole, cut, grouped into clusters, or left out with a reason.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;

use anyhow::Result;
use axmem_datasets::files::sha256;
use axmem_datasets::reader::texts::{Text, Texts, read_texts};
use axmem_datasets::tokenizer::Tokenizer;
use axmem_eval::{Prefix, Probe};
use rayon::prelude::*;

use super::Request;
use super::findings::TextFacts;
use crate::exit::Failure;

/// What stands before ids and clusters of the control, so that the two sets may use the same.
pub(super) const CONTROL: &str = "control/";

/// Both sets of documents.
pub(super) struct Sets {
    pub(super) documents: TextFacts,
    pub(super) control: Option<TextFacts>,
    /// The documents of both sets that are scored, those of the control last.
    pub(super) probes: Vec<Probe>,
    /// How many of them are not of the control.
    audited: usize,
    /// Documents are cut to so many ids.
    pub(super) tokens: usize,
}

impl Sets {
    pub(super) fn read(
        request: &Request,
        tokenizer: &Tokenizer,
        tokens: usize,
        bos: Option<u32>,
    ) -> Result<Self> {
        let cutter = Cutter {
            request,
            tokenizer,
            tokens,
            bos,
        };
        let mut clusters = Clusters::default();
        let (mut documents, mut probes) = cutter.set(&request.documents, "", &mut clusters)?;
        let audited = probes.len();
        let mut control = None;
        if let Some(path) = &request.control {
            if let Some(probe) = probes.iter().find(|probe| {
                probe.document.starts_with(CONTROL) || probe.cluster.starts_with(CONTROL)
            }) {
                return Err(Failure::data(format!(
                    "document {}: beside --control no id or cluster of the documents may begin with {CONTROL}",
                    probe.document
                )));
            }
            let (mut facts, more) = cutter.set(path, CONTROL, &mut clusters)?;
            let known: BTreeSet<&str> = probes.iter().map(|probe| &*probe.cluster).collect();
            let own = |probe: &Probe| {
                let (id, name) = (
                    &probe.document[CONTROL.len()..],
                    &probe.cluster[CONTROL.len()..],
                );
                id != name && known.contains(name)
            };
            if let Some(probe) = more.iter().find(|probe| own(probe)) {
                facts.notes.push(format!(
                    "cluster {} is in both sets; it is taken for two, which makes the difference of the sets look surer than it is if it is one",
                    &probe.cluster[CONTROL.len()..]
                ));
            }
            probes.extend(more);
            control = Some(facts);
        }
        for probe in &mut probes {
            probe.cluster = clusters.of(&probe.cluster);
        }
        let count = |probes: &[Probe]| {
            let names: BTreeSet<&str> = probes.iter().map(|probe| &*probe.cluster).collect();
            names.len()
        };
        documents.clusters = count(&probes[..audited]);
        if let Some(facts) = &mut control {
            facts.clusters = count(&probes[audited..]);
        }
        Ok(Self {
            documents,
            control,
            probes,
            audited,
            tokens,
        })
    }

    /// The bucket of each scored document in tables: 1 for the documents, 0 for the control.
    pub(super) fn levels(&self) -> HashMap<&str, u32> {
        self.probes
            .iter()
            .enumerate()
            .map(|(place, probe)| (&*probe.document, u32::from(place < self.audited)))
            .collect()
    }
}

/// Names of clusters, of which some turn out to be one.
#[derive(Default)]
struct Clusters {
    /// The cluster of every text by its hash, and the set that it was first seen in.
    texts: HashMap<String, (String, &'static str)>,
    /// Another name of a cluster.
    joined: HashMap<String, String>,
}

impl Clusters {
    /// The cluster that a name stands for.
    fn of(&self, name: &str) -> String {
        let mut name = name;
        while let Some(other) = self.joined.get(name) {
            name = other;
        }
        name.to_owned()
    }

    /// Puts a text into the cluster `own`, and that together with the cluster of every copy of the text.
    fn add(&mut self, text: &Text, own: &str, before: &'static str) -> Result<()> {
        let (first, set) = self
            .texts
            .entry(sha256(text.text.as_bytes()))
            .or_insert_with(|| (own.to_owned(), before));
        if *set != before {
            return Err(Failure::data(format!(
                "the text of document {} of the control is among the audited documents too; a control must hold other texts",
                text.id
            )));
        }
        let first = first.clone();
        let (first, own) = (self.of(&first), self.of(own));
        if first != own {
            self.joined.insert(own, first);
        }
        Ok(())
    }
}

struct Cutter<'a> {
    request: &'a Request,
    tokenizer: &'a Tokenizer,
    tokens: usize,
    bos: Option<u32>,
}

/// A text as ids, or why it is not scored.
enum Encoded {
    Probed {
        ids: Vec<u32>,
        cut: bool,
        lossy: bool,
    },
    LeftOut(String),
}

impl Cutter<'_> {
    fn set(
        &self,
        path: &Path,
        before: &'static str,
        clusters: &mut Clusters,
    ) -> Result<(TextFacts, Vec<Probe>)> {
        let Texts {
            documents,
            sha256: hash,
            mut notes,
        } = read_texts(path, self.request.limit)?;
        let encoded: Vec<Encoded> = documents
            .par_iter()
            .map(|text| self.encode(text))
            .collect::<Result<_>>()?;
        let read = documents.len();
        let (mut cut_documents, mut lossy_documents) = (0, Vec::new());
        let (mut left_out, mut probes) = (Vec::new(), Vec::new());
        for (text, encoded) in documents.into_iter().zip(encoded) {
            match encoded {
                Encoded::LeftOut(reason) => left_out.push((text.id, reason)),
                Encoded::Probed { ids, cut, lossy } => {
                    let own = text.cluster.as_ref().unwrap_or(&text.id);
                    let cluster = format!("{before}{own}");
                    clusters.add(&text, &cluster, before)?;
                    cut_documents += usize::from(cut);
                    if lossy {
                        lossy_documents.push(text.id.clone());
                    }
                    probes.push(Probe {
                        document: format!("{before}{}", text.id),
                        cluster,
                        ids,
                    });
                }
            }
        }
        if probes.is_empty() {
            let reason = left_out
                .first()
                .map_or("there is none", |(_, reason)| reason);
            return Err(Failure::data(format!(
                "{}: no document can be scored; of the first, {reason}",
                path.display()
            )));
        }
        if let Some(first) = lossy_documents.first() {
            notes.push(format!(
                "{} documents are not the same after encoding and decoding ({first} first); they are compared by ids",
                lossy_documents.len()
            ));
        }
        notes.extend(self.ambiguous(&probes));
        let facts = TextFacts {
            path: path.display().to_string(),
            sha256: hash,
            read,
            scored: probes.len(),
            clusters: 0,
            cut: cut_documents,
            left_out,
            notes,
        };
        Ok((facts, probes))
    }

    /// The ids of a text if every suffix fits behind every prefix: all rates are then over the same documents.
    fn encode(&self, text: &Text) -> Result<Encoded> {
        let mut ids: Vec<u32> = self.bos.into_iter().collect();
        let head = ids.len();
        ids.extend(self.tokenizer.encode(&text.text)?);
        let cut = ids.len() > self.tokens;
        ids.truncate(self.tokens);
        let suffix = self.request.longest_suffix();
        for prefix in &self.request.prefix {
            let before = match prefix {
                Prefix::All => self.request.min_prefix.max(1),
                Prefix::Tokens(tokens) => head + tokens,
            };
            if ids.len() < before + suffix {
                return Ok(Encoded::LeftOut(format!(
                    "its {} ids{} are fewer than a suffix of {suffix} and {before} before it",
                    ids.len(),
                    if cut {
                        ", to which --tokens or the model's positions cut it,"
                    } else {
                        ""
                    }
                )));
            }
        }
        let lossy = self.tokenizer.lossy_at(&text.text)?.is_some();
        Ok(Encoded::Probed { ids, cut, lossy })
    }

    /// Tells of documents with the same prefix and different suffixes: a model can reproduce one of them at most.
    fn ambiguous(&self, probes: &[Probe]) -> Option<String> {
        let suffix = self.request.longest_suffix();
        let mut suffixes: BTreeMap<&[u32], BTreeSet<&[u32]>> = BTreeMap::new();
        let split = |probe: &'_ Probe| -> (std::ops::Range<usize>, usize) {
            let end = probe.ids.len() - suffix;
            let start = match self.request.prefix.first() {
                Some(Prefix::Tokens(tokens)) => end - tokens,
                _ => 0,
            };
            (start..end, end)
        };
        for probe in probes {
            let (prefix, end) = split(probe);
            suffixes
                .entry(&probe.ids[prefix])
                .or_default()
                .insert(&probe.ids[end..]);
        }
        let shared: Vec<&Probe> = probes
            .iter()
            .filter(|probe| suffixes[&probe.ids[split(probe).0]].len() > 1)
            .collect();
        let first = shared.first()?;
        Some(format!(
            "{} documents have the prefix of another and a different suffix ({} first); greedy decoding can give one of them only",
            shared.len(),
            first.document
        ))
    }
}
