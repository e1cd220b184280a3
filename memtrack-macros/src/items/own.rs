//! The `#[track_memory]`s that a member of an annotated block carries itself.

use super::member::{Member, RawAttribute};
use crate::options::Options;
use proc_macro2::{Delimiter, Group, Ident, Span, TokenStream, TokenTree};
use quote::{ToTokens as _, quote};
use syn::Path;
use syn::parse::{ParseStream, Parser as _};

/// Attributes that rustc knows and that rewrite nothing: behind them, an attribute sees the item as it is written.
const INERT: [&str; 15] = [
    "allow",
    "cfg",
    "cold",
    "deny",
    "deprecated",
    "doc",
    "expect",
    "forbid",
    "inline",
    "must_use",
    "no_mangle",
    "target_feature",
    "track_caller",
    "unsafe",
    "warn",
];

/// The option of an attribute that has done its work.
///
/// It stays where it was, so that an import of `track_memory` is still used.
const SPENT: &str = "__spent";

/// A member's own attributes, by their places among all.
pub(super) struct Attributes(Vec<(usize, Own)>);

enum Own {
    /// `#[track_memory(…)]`.
    Direct(Call),
    /// `#[cfg_attr(predicate, …, track_memory(…), …)]`.
    Conditional { predicate: TokenStream, list: Vec<Listed> },
}

/// One of the attributes in a `cfg_attr`.
enum Listed {
    Ours(Call),
    Other(TokenStream),
}

/// `path::track_memory(options)`.
struct Call {
    path: Path,
    options: TokenStream,
}

impl Attributes {
    pub(super) fn of(member: &Member) -> Self {
        let own = |(place, attribute): (usize, &RawAttribute)| Some((place, read(attribute.content.stream())?));
        Self(member.attributes.iter().enumerate().filter_map(own).collect())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether one of them leaves the member out, whatever the configuration.
    pub(super) fn skips(&self) -> bool {
        self.0.iter().any(|(_, own)| matches!(own, Own::Direct(call) if call.is_skip()))
    }

    /// The member with each `#[track_memory(skip)]` spent.
    pub(super) fn without_skips(&self, member: &Member) -> Member {
        self.map(member, |call| if call.is_skip() { spent() } else { call.options.clone() })
    }

    /// If the member's own attribute can be expanded with its block, as nothing else would see the member before: its
    /// options, and the member with the attribute spent. So too for a member that has none.
    pub(super) fn expanded_here(&self, member: &Member) -> Option<(TokenStream, Member)> {
        match self.0.as_slice() {
            [] => Some((TokenStream::new(), member.clone())),
            [(place, Own::Direct(call))] if member.attributes[..*place].iter().all(is_inert) => {
                Some((call.options.clone(), self.map(member, |_| spent())))
            }
            _ => None,
        }
    }

    /// The member with other options in its own attributes, to be expanded where they stand. Where none of them might be
    /// left when the configuration is known, one with the options of the block takes its place.
    pub(super) fn rewritten(&self, member: &Member, merge: impl Fn(TokenStream) -> TokenStream) -> Member {
        let mut rewritten = self.map(member, |call| if call.is_skip() { spent() } else { merge(call.options.clone()) });
        let mut predicates = Vec::new();
        let mut path = None;
        for (place, own) in &self.0 {
            match own {
                Own::Direct(_) => return rewritten,
                Own::Conditional { predicate, list } => {
                    predicates.push(predicate);
                    path = path.or_else(|| Some((*place, list.iter().find_map(Listed::path)?)));
                }
            }
        }
        if let Some((place, path)) = path {
            let options = merge(TokenStream::new());
            let content = quote!(cfg_attr(not(any(#(#predicates),*)), #path(#options)));
            rewritten.attributes.insert(0, member.attributes[place].with_content(content));
        }
        rewritten
    }

    /// The member with what `options` gives for each of its own attributes.
    fn map(&self, member: &Member, options: impl Fn(&Call) -> TokenStream) -> Member {
        let written = |call: &Call| {
            let (path, options) = (&call.path, options(call));
            quote!(#path(#options))
        };
        let mut member = member.clone();
        for (place, own) in &self.0 {
            let content = match own {
                Own::Direct(call) => written(call),
                Own::Conditional { predicate, list } => {
                    let list = list.iter().map(|listed| match listed {
                        Listed::Ours(call) => written(call),
                        Listed::Other(tokens) => tokens.clone(),
                    });
                    quote!(cfg_attr(#predicate, #(#list),*))
                }
            };
            member.attributes[*place] = member.attributes[*place].with_content(content);
        }
        member
    }
}

impl Call {
    fn is_skip(&self) -> bool {
        Options::read(self.options.clone()).is_skip()
    }
}

impl Listed {
    fn path(&self) -> Option<&Path> {
        match self {
            Self::Ours(call) => Some(&call.path),
            Self::Other(_) => None,
        }
    }
}

impl RawAttribute {
    fn with_content(&self, content: TokenStream) -> Self {
        let mut group = Group::new(Delimiter::Bracket, content);
        group.set_span(self.content.span());
        Self { pound: self.pound.clone(), content: group }
    }
}

fn spent() -> TokenStream {
    Ident::new(SPENT, Span::call_site()).into_token_stream()
}

/// Whether these are the options of an attribute that has done its work.
pub(super) fn is_spent(options: &TokenStream) -> bool {
    let mut tokens = options.clone().into_iter();
    matches!((tokens.next(), tokens.next()), (Some(TokenTree::Ident(word)), None) if word == SPENT)
}

fn read(content: TokenStream) -> Option<Own> {
    let content = opened(content);
    if let Some(call) = read_call(content.clone()) {
        return Some(Own::Direct(call));
    }
    let read = |input: ParseStream<'_>| {
        let path = input.call(Path::parse_mod_style)?;
        let list: Group = input.parse()?;
        Ok((path, list))
    };
    let (path, list) = read.parse2(content).ok()?;
    if !path.is_ident("cfg_attr") {
        return None;
    }
    let mut list = split_at_commas(list.stream()).into_iter();
    let predicate = list.next()?;
    let list: Vec<Listed> = list
        .map(|tokens| match read_call(opened(tokens.clone())) {
            Some(call) => Listed::Ours(call),
            None => Listed::Other(tokens),
        })
        .collect();
    list.iter().any(|listed| listed.path().is_some()).then_some(Own::Conditional { predicate, list })
}

/// Reads `path::track_memory` with nothing or one group behind it.
fn read_call(content: TokenStream) -> Option<Call> {
    let read = |input: ParseStream<'_>| {
        let path = input.call(Path::parse_mod_style)?;
        let options = if input.is_empty() { TokenStream::new() } else { input.parse::<Group>()?.stream() };
        Ok(Call { path, options })
    };
    let call = read.parse2(content).ok()?;
    call.path.segments.last().is_some_and(|segment| segment.ident == "track_memory").then_some(call)
}

/// The tokens out of the invisible group around what a macro took for a `$meta:meta`.
fn opened(tokens: TokenStream) -> TokenStream {
    let mut inside = tokens.clone().into_iter();
    match (inside.next(), inside.next()) {
        (Some(TokenTree::Group(group)), None) if group.delimiter() == Delimiter::None => opened(group.stream()),
        _ => tokens,
    }
}

fn split_at_commas(tokens: TokenStream) -> Vec<TokenStream> {
    let mut pieces = vec![TokenStream::new()];
    for token in tokens {
        match (&token, pieces.last_mut()) {
            (TokenTree::Punct(punct), _) if punct.as_char() == ',' => pieces.push(TokenStream::new()),
            (_, Some(piece)) => piece.extend([token]),
            (_, None) => {}
        }
    }
    pieces.retain(|piece| !piece.is_empty());
    pieces
}

fn is_inert(attribute: &RawAttribute) -> bool {
    let first = opened(attribute.content.stream()).into_iter().next();
    matches!(first, Some(TokenTree::Ident(word)) if INERT.iter().any(|inert| word == inert))
}
