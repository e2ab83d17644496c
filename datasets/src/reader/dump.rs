//! MediaWiki XML dumps, plain or under bzip2, read as a stream.
//!
//! A page is taken from its own element: title, namespace, the page's id (not the revision's),
//! redirect and text, so nothing moves over to the next page. Redirects, disambiguation pages,
//! pages of other namespaces and pages without text are counted and left out.

use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use bzip2::bufread::MultiBzDecoder;
use quick_xml::XmlVersion;
use quick_xml::events::{BytesStart, Event};
use quick_xml::reader::Reader;

use super::{Output, Page as Given, templates, wikitext};
use crate::document::{Document, Flag};
use crate::error::{Error, Result};
use crate::files;

/// Bytes of XML a page may take; MediaWiki stores at most 2 MiB of text in one. A limit keeps a
/// small archive from filling the memory.
const LARGEST_PAGE: u64 = 64 << 20;

/// What is gathered of one `<page>`.
#[derive(Default)]
struct Page {
    title: String,
    id: String,
    namespace: Option<i64>,
    redirect: Option<String>,
    text: String,
}

/// The elements whose text is wanted, told by their parent as well.
#[derive(Clone, Copy, PartialEq)]
enum Field {
    Title,
    Id,
    Namespace,
    Text,
    NamespaceName,
    Base,
}

/// Reads every page of a dump.
pub fn read(path: &Path, compressed: bool, output: &mut Output<'_>) -> Result<()> {
    let file = files::open(path)?;
    if compressed {
        let decoder = MultiBzDecoder::new(file);
        read_xml(BufReader::with_capacity(1 << 16, decoder), path, output)
    } else {
        read_xml(file, path, output)
    }
}

fn read_xml(input: impl BufRead, path: &Path, output: &mut Output<'_>) -> Result<()> {
    let mut reader = Reader::from_reader(Limited {
        inner: input,
        left: LARGEST_PAGE,
    });
    let mut dump = Dump {
        namespaces: Vec::new(),
        prefixes: Vec::new(),
        base: String::new(),
        pages: 0,
        page: None,
        parents: Vec::new(),
        field: None,
    };
    let mut buffer = Vec::new();
    loop {
        buffer.clear();
        let event = reader.read_event_into(&mut buffer);
        let position = reader.buffer_position();
        let bad = |message: String| Error::input(path, dump.place(position), message);
        let event = event.map_err(|error| {
            bad(format!(
                "is damaged or cut short: {error}; fetch the file again"
            ))
        })?;
        let ended = matches!(event, Event::Eof);
        if ended {
            if let Some(open) = dump.parents.last() {
                let open = String::from_utf8_lossy(open);
                return Err(bad(format!("is cut short: <{open}> has no end")));
            }
            if dump.pages == 0 {
                return Err(bad("holds no <page>: it is not a MediaWiki dump".to_owned()));
            }
            return Ok(());
        }
        let finished = dump.take(event).map_err(|message| {
            Error::input(path, dump.place(position), format!("is damaged: {message}"))
        })?;
        if let Some(page) = finished {
            reader.get_mut().left = LARGEST_PAGE;
            dump.pages += 1;
            let place = dump.place(position);
            finish(page, &dump, path, place, output)?;
        }
    }
}

/// The state of the walk through the XML.
struct Dump {
    /// The namespace key whose name is being read, if any.
    namespaces: Vec<i64>,
    /// Lower-case title prefixes of the namespaces that are not the articles'.
    prefixes: Vec<String>,
    /// Address of the wiki's main page, from which articles' addresses follow.
    base: String,
    /// Pages read to their end.
    pages: u64,
    page: Option<Page>,
    /// Names of the open elements.
    parents: Vec<Vec<u8>>,
    field: Option<Field>,
}

impl Dump {
    /// Where the walk is, for messages.
    fn place(&self, byte: u64) -> String {
        match &self.page {
            Some(page) if !page.title.is_empty() => format!(
                "byte {byte} of the XML (page {}, {:?})",
                self.pages + 1,
                page.title
            ),
            _ => format!("byte {byte} of the XML (after page {})", self.pages),
        }
    }

    /// Takes one event; gives the page that ends with it.
    fn take(&mut self, event: Event<'_>) -> std::result::Result<Option<Page>, String> {
        match event {
            Event::Start(element) => {
                self.open(&element)?;
                self.parents.push(element.name().as_ref().to_vec());
            }
            Event::Empty(element) => {
                self.open(&element)?;
                self.field = None;
            }
            Event::Text(text) => {
                let content = text.xml10_content().map_err(|error| error.to_string())?;
                self.append(&content)?;
            }
            Event::CData(text) => {
                let content = text.xml10_content().map_err(|error| error.to_string())?;
                self.append(&content)?;
            }
            Event::GeneralRef(reference) => {
                let character = reference
                    .resolve_char_ref()
                    .map_err(|error| error.to_string())?;
                if let Some(character) = character {
                    self.append(character.encode_utf8(&mut [0; 4]))?;
                } else {
                    let name = reference.decode().map_err(|error| error.to_string())?;
                    let text = quick_xml::escape::resolve_predefined_entity(&name)
                        .ok_or_else(|| format!("&{name}; is no entity of XML"))?;
                    self.append(text)?;
                }
            }
            Event::End(element) => {
                self.parents.pop();
                self.field = None;
                if element.name().as_ref() == b"page" {
                    return Ok(self.page.take());
                }
            }
            _ => {}
        }
        Ok(None)
    }

    fn open(&mut self, element: &BytesStart<'_>) -> std::result::Result<(), String> {
        let parent = self.parents.last().map_or(&b""[..], Vec::as_slice);
        let name = element.name();
        self.field = match (parent, name.as_ref()) {
            (_, b"page") => {
                self.page = Some(Page::default());
                None
            }
            (b"page", b"title") => Some(Field::Title),
            (b"page", b"id") => Some(Field::Id),
            (b"page", b"ns") => Some(Field::Namespace),
            (b"page", b"redirect") => {
                let target = attribute(element, "title")?.unwrap_or_default();
                if let Some(page) = &mut self.page {
                    page.redirect = Some(target);
                }
                None
            }
            (b"siteinfo", b"base") => Some(Field::Base),
            (b"revision", b"text") => {
                // With several revisions of a page the last one counts.
                if let Some(page) = &mut self.page {
                    page.text.clear();
                }
                Some(Field::Text)
            }
            (b"namespaces", b"namespace") => {
                let key = attribute(element, "key")?.and_then(|key| key.parse::<i64>().ok());
                self.namespaces.clear();
                self.namespaces.extend(key);
                self.prefixes.push(String::new());
                Some(Field::NamespaceName)
            }
            _ => None,
        };
        Ok(())
    }

    fn append(&mut self, text: &str) -> std::result::Result<(), String> {
        let Some(field) = self.field else {
            return Ok(());
        };
        if field == Field::NamespaceName {
            if self.namespaces.first().is_some_and(|&key| key != 0)
                && let Some(prefix) = self.prefixes.last_mut()
            {
                prefix.push_str(&text.trim().to_lowercase());
            }
            return Ok(());
        }
        if field == Field::Base {
            self.base.push_str(text.trim());
            return Ok(());
        }
        let Some(page) = &mut self.page else {
            return Ok(());
        };
        match field {
            Field::Title => page.title.push_str(text),
            Field::Id => page.id.push_str(text.trim()),
            Field::Text => page.text.push_str(text),
            Field::Namespace => {
                let number = text.trim().parse();
                page.namespace =
                    Some(number.map_err(|_| format!("<ns> is {text:?}, not a number"))?);
            }
            Field::NamespaceName | Field::Base => {}
        }
        Ok(())
    }
}

fn attribute(element: &BytesStart<'_>, name: &str) -> std::result::Result<Option<String>, String> {
    let Some(attribute) = element
        .try_get_attribute(name)
        .map_err(|error| error.to_string())?
    else {
        return Ok(None);
    };
    let value = attribute
        .normalized_value(XmlVersion::Implicit1_0)
        .map_err(|error| error.to_string())?;
    Ok(Some(value.into_owned()))
}

/// Sorts a finished page into the counts, or gives its document on.
fn finish(
    page: Page,
    dump: &Dump,
    path: &Path,
    place: String,
    output: &mut Output<'_>,
) -> Result<()> {
    if page.title.is_empty() || page.id.is_empty() {
        return Err(Error::input(
            path,
            place,
            "holds a page without <title> or <id>",
        ));
    }
    let report = &mut output.report;
    let elsewhere = match page.namespace {
        Some(namespace) => namespace != 0,
        // Old dumps have no <ns>; a colon alone says nothing ("Star Trek: The Next Generation").
        None => page.title.split_once(':').is_some_and(|(prefix, _)| {
            let prefix = prefix.trim().replace('_', " ").to_lowercase();
            !prefix.is_empty() && dump.prefixes.contains(&prefix)
        }),
    };
    if elsewhere {
        report.pages += 1;
        report.other_namespaces += 1;
        return (output.sink)(Given::Other(page.id));
    }
    let by_text = redirect_target(&page.text);
    if let Some(target) = page
        .redirect
        .filter(|target| !target.is_empty())
        .or(by_text)
    {
        report.pages += 1;
        report.redirects += 1;
        return (output.sink)(Given::Redirect {
            id: page.id,
            title: page.title,
            target,
        });
    }
    if templates::is_disambiguation(&page.title, &page.text) {
        report.pages += 1;
        report.disambiguation += 1;
        return (output.sink)(Given::Other(page.id));
    }
    let (text, holes) = wikitext::to_text(&page.text);
    output.document(Document {
        url: dump
            .base
            .rsplit_once('/')
            .map_or(String::new(), |(wiki, _)| {
                format!("{wiki}/{}", page.title.replace(' ', "_"))
            }),
        id: page.id,
        title: page.title,
        text,
        flags: if holes {
            vec![Flag::TemplatesRemoved]
        } else {
            Vec::new()
        },
    })
}

/// The target of a text that begins with `#REDIRECT [[target]]`.
fn redirect_target(text: &str) -> Option<String> {
    const KEYWORD: &str = "#redirect";
    let text = text.trim_start();
    let keyword = text.get(..KEYWORD.len())?;
    if !keyword.eq_ignore_ascii_case(KEYWORD) {
        return None;
    }
    let (_, link) = text.split_once("[[").unwrap_or_default();
    let end = link.find([']', '|', '#', '\n']).unwrap_or(link.len());
    Some(link[..end].trim().to_owned())
}

/// A reader that fails once a page has taken more than its share; the share is renewed by hand.
struct Limited<R> {
    inner: R,
    left: u64,
}

impl<R: BufRead> Read for Limited<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.fill_buf()?.read(buffer)?;
        self.consume(count);
        Ok(count)
    }
}

impl<R: BufRead> BufRead for Limited<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.left == 0 {
            return Err(io::Error::other(format!(
                "a page takes more than {LARGEST_PAGE} bytes"
            )));
        }
        self.inner.fill_buf()
    }

    fn consume(&mut self, amount: usize) {
        self.left = self.left.saturating_sub(amount as u64);
        self.inner.consume(amount);
    }
}
