//! The members of a block, told apart by their first words and their ends.
//!
//! No body is read, and no more of a head than is needed to find its end. A member that is wrong, or of a kind that is
//! not known here, passes as it is, token by token; rustc has read all of it before and reports it.

use crate::function::braced;
use proc_macro2::{Delimiter, Group, Punct, Spacing, TokenStream, TokenTree};
use quote::{ToTokens, TokenStreamExt as _};
use std::collections::VecDeque;

/// An item, or a member of an `impl` block or a trait.
#[derive(Clone)]
pub(super) struct Member {
    pub(super) attributes: Vec<RawAttribute>,
    /// Everything behind the attributes; of a block, everything before its body.
    pub(super) tokens: Vec<TokenTree>,
    pub(super) kind: Kind,
}

/// `#[…]`, unread.
#[derive(Clone)]
pub(super) struct RawAttribute {
    pub(super) pound: TokenTree,
    pub(super) content: Group,
}

/// What matters about a member.
#[derive(Clone)]
pub(super) enum Kind {
    Function {
        has_body: bool,
    },
    /// An `impl` block, a trait or an inline module, with its body.
    Block(Group),
    /// `mod m;`, with its semicolon.
    ModuleFile(Punct),
    Other,
}

/// What a member is by its first words.
#[derive(Clone, Copy, PartialEq)]
enum Word {
    Function,
    /// `impl` or `trait`.
    Block,
    Module,
    Other,
}

/// Where a member ends.
#[derive(Clone, Copy, PartialEq)]
enum End {
    Semicolon,
    /// At the first braces outside of angle brackets, or at a semicolon.
    Body,
    /// Of a macro's call: at its delimiters, and unless they are braces at the semicolon behind.
    Call,
}

impl Member {
    /// The one item that these tokens are.
    pub(super) fn read_one(tokens: TokenStream) -> Option<Self> {
        let mut tokens = tokens.into_iter().collect();
        read_member(&mut tokens)
    }

    /// Whether this can be an item: a statement and an expression begin otherwise, but for calls and paths.
    pub(super) fn is_item(&self) -> bool {
        const OF_BODIES: [&str; 9] = ["let", "if", "match", "for", "while", "loop", "return", "break", "continue"];
        match self.tokens.first() {
            Some(TokenTree::Ident(word)) => !OF_BODIES.iter().any(|of_bodies| word == of_bodies),
            Some(_) => false,
            None => true,
        }
    }

    /// The block with another body.
    pub(super) fn with_body(&self, body: Group) -> TokenStream {
        let mut tokens = TokenStream::new();
        tokens.append_all(&self.attributes);
        tokens.append_all(&self.tokens);
        tokens.append(body);
        tokens
    }
}

impl ToTokens for Member {
    fn to_tokens(&self, tokens: &mut TokenStream) {
        tokens.append_all(&self.attributes);
        tokens.append_all(&self.tokens);
        if let Kind::Block(body) = &self.kind {
            tokens.append(body.clone());
        }
    }
}

impl ToTokens for RawAttribute {
    fn to_tokens(&self, tokens: &mut TokenStream) {
        tokens.append(self.pound.clone());
        tokens.append(self.content.clone());
    }
}

/// Splits a block's body into its inner attributes and its members.
pub(super) fn read_members(body: TokenStream) -> (TokenStream, Vec<Member>) {
    let mut tokens: VecDeque<TokenTree> = body.into_iter().collect();
    let mut inner_attributes = TokenStream::new();
    while is_punct(tokens.front(), '#') && is_punct(tokens.get(1), '!') && is_brackets(tokens.get(2)) {
        inner_attributes.extend(tokens.drain(..3));
    }
    let mut members = Vec::new();
    while let Some(member) = read_member(&mut tokens) {
        members.push(member);
    }
    (inner_attributes, members)
}

fn read_member(tokens: &mut VecDeque<TokenTree>) -> Option<Member> {
    let mut attributes = Vec::new();
    loop {
        let Some(first) = tokens.front() else {
            // Attributes of nothing: rustc's to report, and not to be lost.
            let left = Member { attributes, tokens: Vec::new(), kind: Kind::Other };
            return Some(left).filter(|left| !left.attributes.is_empty());
        };
        match (first, tokens.get(1)) {
            (TokenTree::Punct(punct), Some(TokenTree::Group(content)))
                if punct.as_char() == '#' && content.delimiter() == Delimiter::Bracket =>
            {
                attributes.push(RawAttribute { pound: punct.clone().into(), content: content.clone() });
                tokens.drain(..2);
            }
            // What a macro took for an `$item:item`.
            (TokenTree::Group(group), _) if group.delimiter() == Delimiter::None && !is_visibility(group) => {
                let inside: Vec<TokenTree> = group.stream().into_iter().collect();
                tokens.pop_front();
                for token in inside.into_iter().rev() {
                    tokens.push_front(token);
                }
            }
            _ => break,
        }
    }
    let (word, end) = classify(tokens);
    let mut taken = take(tokens, end);
    let kind = match (word, taken.last()) {
        (Word::Function, Some(last)) => Kind::Function { has_body: braced(last.clone()).is_some() },
        (Word::Module, Some(TokenTree::Punct(semicolon))) => Kind::ModuleFile(semicolon.clone()),
        (Word::Block | Word::Module, Some(last)) => match braced(last.clone()) {
            Some(body) => {
                taken.pop();
                Kind::Block(body)
            }
            None => Kind::Other,
        },
        _ => Kind::Other,
    };
    Some(Member { attributes, tokens: taken, kind })
}

/// Reads the words up to the one that says what the member is.
fn classify(tokens: &VecDeque<TokenTree>) -> (Word, End) {
    let word_at = |index: usize| match tokens.get(index) {
        Some(TokenTree::Ident(word)) => Some(word.to_string()),
        _ => None,
    };
    let mut index = 0;
    while let Some(token) = tokens.get(index) {
        let word = match token {
            TokenTree::Ident(word) => word.to_string(),
            // A visibility's scope, an ABI, or what a macro took for a `$visibility:vis`.
            TokenTree::Group(group) if matches!(group.delimiter(), Delimiter::Parenthesis | Delimiter::None) => {
                index += 1;
                continue;
            }
            TokenTree::Literal(_) => {
                index += 1;
                continue;
            }
            // `extern "C" { … }`.
            TokenTree::Group(_) => return (Word::Other, End::Body),
            TokenTree::Punct(_) => return (Word::Other, End::Call),
        };
        index += 1;
        if is_punct(tokens.get(index), '!') && word != "impl" {
            return (Word::Other, End::Call);
        }
        match word.as_str() {
            "fn" => return (Word::Function, End::Body),
            "impl" | "trait" => return (Word::Block, End::Body),
            "mod" => return (Word::Module, End::Body),
            "struct" | "enum" | "macro" => return (Word::Other, End::Body),
            "union" if word_at(index).is_some() => return (Word::Other, End::Body),
            "type" | "use" | "static" => return (Word::Other, End::Semicolon),
            "extern" if word_at(index).as_deref() == Some("crate") => return (Word::Other, End::Semicolon),
            "const" => match word_at(index).as_deref() {
                Some("fn" | "async" | "unsafe" | "extern" | "trait" | "impl") => {}
                _ => return (Word::Other, End::Semicolon),
            },
            "pub" | "default" | "auto" | "async" | "unsafe" | "safe" | "extern" => {}
            _ => return (Word::Other, End::Call),
        }
    }
    (Word::Other, End::Call)
}

/// Takes the tokens of one member. At least one, if there is one.
fn take(tokens: &mut VecDeque<TokenTree>, end: End) -> Vec<TokenTree> {
    let mut taken = Vec::new();
    let mut angle_depth = 0_usize;
    // Whether the last token was the first half of `->` or `=>`.
    let mut in_arrow = false;
    while let Some(token) = tokens.pop_front() {
        let mut ends = false;
        let mut begins_arrow = false;
        match &token {
            TokenTree::Punct(punct) => match punct.as_char() {
                ';' => ends = true,
                '<' => angle_depth += 1,
                '>' if !in_arrow => angle_depth = angle_depth.saturating_sub(1),
                '-' | '=' => begins_arrow = punct.spacing() == Spacing::Joint,
                _ => {}
            },
            TokenTree::Group(group) => {
                ends = match end {
                    End::Semicolon => false,
                    End::Body => angle_depth == 0 && braced(token.clone()).is_some(),
                    End::Call => match group.delimiter() {
                        Delimiter::None => false,
                        Delimiter::Brace => true,
                        _ => !is_punct(tokens.front(), ';'),
                    },
                };
            }
            TokenTree::Ident(_) | TokenTree::Literal(_) => {}
        }
        in_arrow = begins_arrow;
        taken.push(token);
        if ends {
            break;
        }
    }
    taken
}

fn is_punct(token: Option<&TokenTree>, character: char) -> bool {
    matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == character)
}

fn is_brackets(token: Option<&TokenTree>) -> bool {
    matches!(token, Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Bracket)
}

/// Whether an invisible group is nothing or `pub` with its scope, and not an item that begins with it.
fn is_visibility(group: &Group) -> bool {
    let tokens: Vec<TokenTree> = group.stream().into_iter().collect();
    match tokens.as_slice() {
        [] => true,
        [TokenTree::Ident(word), scope @ ..] if word == "pub" => match scope {
            [] => true,
            [TokenTree::Group(group)] => group.delimiter() == Delimiter::Parenthesis,
            _ => false,
        },
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kinds of the members and where each ends.
    fn split(body: &str) -> Vec<(char, String)> {
        let (_, members) = read_members(body.parse().unwrap());
        let letter = |kind: &Kind| match kind {
            Kind::Function { has_body: true } => 'f',
            Kind::Function { has_body: false } => ';',
            Kind::Block(_) => 'b',
            Kind::ModuleFile(_) => 'm',
            Kind::Other => 'o',
        };
        members.iter().map(|member| (letter(&member.kind), member.to_token_stream().to_string())).collect()
    }

    #[track_caller]
    fn assert_members(members: &[(char, &str)]) {
        let all = members.iter().map(|(_, text)| *text).collect::<Vec<_>>().join(" ");
        let expected: Vec<(char, String)> =
            members.iter().map(|(kind, text)| (*kind, text.parse::<TokenStream>().unwrap().to_string())).collect();
        assert_eq!(split(&all), expected);
    }

    #[test]
    fn functions_of_every_form() {
        assert_members(&[
            ('f', "fn a() {}"),
            (';', "fn b(&self) -> u8;"),
            ('f', "pub(crate) async unsafe fn c<T>(x: T) where T: Fn() -> u8 { x(); }"),
            ('f', "#[inline] pub const extern \"C\" fn d() { 1 }"),
            ('f', "default fn e() -> Option<Vec<u8>> { None }"),
            ('f', "extern fn g() -> [u8; { 3 }] {}"),
            ('f', "const unsafe fn h() {}"),
        ]);
    }

    #[test]
    fn braces_in_angle_brackets_are_no_body() {
        assert_members(&[
            ('f', "fn a() -> A<{ 1 + 1 }> { body() }"),
            ('f', "fn b<const N: usize = { 3 }>(f: fn() -> A<{ N }>) -> B<<A<{ N }> as C>::D> {}"),
            ('b', "impl<const N: usize> Index<fn(u8) -> u8> for A<{ N + 1 }> { }"),
            ('f', "fn c() where A<{ 1 }>: Sized {}"),
            ('o', "struct D<const N: usize = { 3 }> { a: u8 }"),
        ]);
    }

    #[test]
    fn blocks_and_modules() {
        assert_members(&[
            ('b', "pub mod a { fn b() {} }"),
            ('m', "pub(super) mod c;"),
            ('b', "unsafe impl<T> Send for D<T> where T: Send { }"),
            ('b', "impl !Sync for E { }"),
            ('b', "pub unsafe auto trait F { }"),
            ('b', "trait G: H<{ 1 }> { fn i(&self); }"),
            ('o', "trait J = K + L;"),
        ]);
    }

    #[test]
    fn other_items_end_where_they_end() {
        assert_members(&[
            ('o', "use a::{b, c};"),
            ('o', "extern crate alloc;"),
            ('o', "const A: u8 = { 1 };"),
            ('o', "const _: () = {};"),
            ('o', "pub static mut B: u8 = if C { 1 } else { 2 };"),
            ('o', "type D = E<{ 1 }>;"),
            ('o', "struct F(u8);"),
            ('o', "struct G;"),
            ('o', "enum H { I }"),
            ('o', "union J { k: u8 }"),
            ('o', "unsafe extern \"C\" { fn l(); }"),
            ('o', "extern { fn m(); }"),
            ('o', "macro_rules! n { () => {}; }"),
            ('o', "macro_rules! o (() => {});"),
            ('o', "macro p($q:expr) { $q }"),
            ('o', "r::s! { fn t() {} }"),
            ('o', "::u!(v);"),
            ('o', "crate::w! [x];"),
            ('o', "union! {}"),
            ('f', "fn last() {}"),
        ]);
    }

    #[test]
    fn attributes_are_kept_apart() {
        let (inner, members) = read_members("#![a] #![b(c)] #[d] #[e(f)] fn g() {} #[h]".parse().unwrap());
        assert_eq!(inner.to_string(), "#! [a] #! [b (c)]");
        let counts: Vec<_> = members.iter().map(|member| (member.attributes.len(), member.tokens.len())).collect();
        assert_eq!(counts, [(2, 4), (1, 0)], "the last attribute is kept although it is nothing's");
    }

    #[test]
    fn fragments_of_macros_are_opened() {
        let group = |text: &str| TokenTree::from(Group::new(Delimiter::None, text.parse().unwrap()));
        let stream = |tokens: Vec<TokenTree>| tokens.into_iter().collect::<TokenStream>();
        let item = group("#[a] pub fn b() {}");
        let (_, members) = read_members(stream(vec![item]));
        assert_eq!(members.len(), 1);
        assert_eq!(members[0].attributes.len(), 1);
        for visibility in ["", "pub", "pub(crate)"] {
            let mut tokens = vec![group(visibility)];
            tokens.extend("fn c()".parse::<TokenStream>().unwrap());
            tokens.push(group("{ }"));
            let (_, members) = read_members(stream(tokens));
            assert_eq!(members.len(), 1);
            assert!(matches!(members[0].kind, Kind::Function { has_body: true }), "{visibility}");
        }
    }
}
