//! The report as Markdown, with the figures beside it.

use std::fmt::Write as _;

use super::page::{Block, Comparison, Page, Span, Table, Text};
use super::visible;

/// Renders the page.
pub(super) fn render(page: &Page) -> String {
    let mut markdown = format!("# {}\n\n{}\n", escape(&page.title), text(&page.subtitle));
    for block in &page.blocks {
        push(&mut markdown, block);
    }
    markdown
}

fn push(markdown: &mut String, block: &Block) {
    markdown.push('\n');
    let _ = match block {
        Block::Section(_, title) => writeln!(markdown, "## {}", escape(title)),
        Block::Paragraph(content) => writeln!(markdown, "{}", text(content)),
        Block::Callout(content) => writeln!(markdown, "> {}", text(content)),
        Block::List(items) => items
            .iter()
            .try_for_each(|item| writeln!(markdown, "- {}", text(item))),
        Block::Table(content) => table(markdown, content),
        Block::Comparison(content) => comparison(markdown, content),
        Block::Figure {
            file,
            alternative,
            caption,
        } => writeln!(
            markdown,
            "![{}]({file})\n\n{}",
            escape(alternative),
            text(caption)
        ),
        Block::Details(summary, blocks) => {
            let opened = writeln!(
                markdown,
                "<details>\n<summary>{}</summary>",
                escape(summary)
            );
            for block in blocks {
                push(markdown, block);
            }
            opened.and_then(|()| writeln!(markdown, "\n</details>"))
        }
        Block::Code(code) => writeln!(markdown, "```text\n{}\n```", code.replace("```", "'''")),
    };
}

fn table(markdown: &mut String, table: &Table) -> std::fmt::Result {
    writeln!(markdown, "{}\n", text(&table.caption))?;
    let header: Vec<String> = table.header.iter().map(|name| escape(name)).collect();
    writeln!(markdown, "| {} |", header.join(" | "))?;
    let rule: Vec<&str> = (0..table.header.len())
        .map(|column| if column < table.names { "---" } else { "---:" })
        .collect();
    writeln!(markdown, "| {} |", rule.join(" | "))?;
    for row in &table.rows {
        let cells: Vec<String> = row.iter().map(text).collect();
        writeln!(markdown, "| {} |", cells.join(" | "))?;
    }
    Ok(())
}

/// Title, facts and each text as a block of its own, with ▲ where it parts from the others.
fn comparison(markdown: &mut String, comparison: &Comparison) -> std::fmt::Result {
    let facts: Vec<String> = comparison
        .facts
        .iter()
        .map(|(name, value)| format!("{} {}", escape(name), text(value)))
        .collect();
    writeln!(
        markdown,
        "### {}\n\n{}",
        text(&comparison.title),
        facts.join("; ")
    )?;
    for passage in &comparison.passages {
        let cut = |cut: bool| if cut { "…" } else { "" };
        let rest = passage.rest.as_ref();
        let body = format!(
            "{}{}{}{}",
            cut(passage.cut.0),
            source(&passage.same),
            rest.map_or_else(String::new, |rest| format!("▲{}", source(rest))),
            cut(passage.cut.1)
        );
        writeln!(
            markdown,
            "\n{}:\n\n```text\n{}\n```",
            escape(passage.label),
            body.replace("```", "'''")
        )?;
    }
    Ok(())
}

/// Text from outside with its control characters shown.
fn source(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        match visible::shown(character) {
            Some(sign) => shown.push_str(&sign),
            None => shown.push(character),
        }
    }
    shown
}

fn text(text: &Text) -> String {
    let mut markdown = String::new();
    for span in &text.0 {
        let _ = match span {
            Span::Plain(text) | Span::Faint(text) => write!(markdown, "{}", escape(text)),
            Span::Source(text) => write!(markdown, "{}", escape(&source(text))),
            Span::Strong(text) => emphasised(&mut markdown, text, "**", "**"),
            // Stars between a letter and a comma are no emphasis, and tokens begin and end anywhere.
            Span::Mark(text) if text.trim().is_empty() => {
                write!(markdown, "<strong>␣</strong>{}", escape(text))
            }
            Span::Mark(text) => emphasised(&mut markdown, text, "<strong>", "</strong>"),
            Span::Code(text) => write!(markdown, "`{}`", text.replace(['`', '\n'], " ")),
        };
    }
    markdown
}

/// Text between the signs of emphasis; spaces at its ends go outside, where the signs need them.
fn emphasised(markdown: &mut String, text: &str, open: &str, close: &str) -> std::fmt::Result {
    let inner = text.trim();
    if inner.is_empty() {
        return write!(markdown, "{}", escape(text));
    }
    let start = text.len() - text.trim_start().len();
    let (before, after) = (&text[..start], &text[start + inner.len()..]);
    write!(
        markdown,
        "{}{open}{}{close}{}",
        escape(before),
        escape(inner),
        escape(after)
    )
}

/// One line of text in which nothing is markup.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\\' | '`' | '*' | '_' | '|' => {
                escaped.push('\\');
                escaped.push(character);
            }
            // Brackets alone are text, as in intervals; followed by a parenthesis they are a link.
            '(' if escaped.ends_with(']') => escaped.push_str("\\("),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '&' => escaped.push_str("&amp;"),
            other if other.is_control() => escaped.push(' '),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::{Text, text};

    #[test]
    fn spaces_stand_outside_the_signs_of_emphasis() {
        let cases = [
            (
                Text::new().strong("Deviation: ").plain("x"),
                "**Deviation:** x",
            ),
            (
                Text::new().plain("the").mark(" river").plain(" bends"),
                "the <strong>river</strong> bends",
            ),
            (
                Text::new().plain("word").mark(", ").plain("next"),
                "word<strong>,</strong> next",
            ),
            (Text::new().mark(" "), "<strong>␣</strong> "),
            (Text::new().strong(" "), " "),
            (Text::new().strong("a*b"), "**a\\*b**"),
        ];
        for (content, expected) in cases {
            assert_eq!(text(&content), expected);
        }
    }
}
