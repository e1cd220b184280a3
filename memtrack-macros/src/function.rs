//! The annotated item, read no further than needed.

use crate::errors::Errors;
use proc_macro2::{Delimiter, Group, Span, TokenStream, TokenTree};
use syn::ext::IdentExt as _;
use syn::parse::{Parse, ParseStream, Parser as _};
use syn::{Attribute, Ident, Signature, Token, VisRestricted, Visibility};

/// A function with a body.
///
/// The body stays raw tokens: it is quoted exactly once, and what is wrong in it is for rustc to report. That also lets
/// an editor expand the attribute while the user is still typing.
pub(crate) struct Function {
    pub(crate) attributes: Vec<Attribute>,
    pub(crate) visibility: Visibility,
    /// The word of a `default fn`, if the user writes specialization.
    pub(crate) defaultness: Option<Ident>,
    pub(crate) signature: Signature,
    /// `#![…]` at the head of the body; they belong to the whole function.
    pub(crate) inner_attributes: Vec<Attribute>,
    /// The user's statements, in the user's braces.
    pub(crate) body: Group,
    /// Where the function ends: at the body's braces, or at the fragment that a macro was given as its body.
    pub(crate) end: Span,
}

impl Function {
    /// Reads an item; none if it is no function with a body, with the reason in `errors`.
    pub(crate) fn read(item: TokenStream, errors: &mut Errors) -> Option<Self> {
        match Self::parse.parse2(item) {
            Ok(function) => Some(function),
            Err(error) => {
                errors.push(error);
                None
            }
        }
    }

    /// Whether the function carries an attribute of this name.
    pub(crate) fn has_attribute(&self, name: &str) -> bool {
        self.attributes.iter().any(|attribute| attribute.path().is_ident(name))
    }
}

impl Parse for Function {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let attributes = input.call(Attribute::parse_outer)?;
        let visibility = visibility(input)?;
        let defaultness = if is_default_function(input) { Some(input.call(Ident::parse_any)?) } else { None };
        if !is_function(&input.fork()) {
            return Err(other_item(input));
        }
        let signature: Signature = input.parse()?;
        if input.peek(Token![;]) {
            let semicolon: Token![;] = input.parse()?;
            return Err(syn::Error::new_spanned(
                semicolon,
                "`#[track_memory]` needs a function body; put it on the method that implements this one",
            ));
        }
        let body = input.cursor().token_tree().and_then(|(token, _)| Some((token.span(), braced(token)?)));
        let Some((end, body)) = body else { return Err(input.error("expected the function's body")) };
        input.parse::<TokenTree>()?;
        let (inner_attributes, body) = split_inner_attributes(body);
        Ok(Self { attributes, visibility, defaultness, signature, inner_attributes, body, end })
    }
}

/// The block that a token is: itself, or in the invisible groups around what a macro took for a `$body:block`.
pub(crate) fn braced(token: TokenTree) -> Option<Group> {
    let TokenTree::Group(group) = token else { return None };
    match group.delimiter() {
        Delimiter::Brace => Some(group),
        Delimiter::None => {
            let mut inside = group.stream().into_iter();
            inside.next().filter(|_| inside.next().is_none()).and_then(braced)
        }
        _ => None,
    }
}

/// The visibility, at the place of the fragment that a macro was given as it: a function begins where its first word
/// stands, and lints ask whether that is in a macro.
fn visibility(input: ParseStream<'_>) -> syn::Result<Visibility> {
    let fragment = input.cursor().token_tree().and_then(|(token, _)| match token {
        TokenTree::Group(group) if group.delimiter() == Delimiter::None => Some(group.span()),
        _ => None,
    });
    let mut visibility = input.parse()?;
    if let (Some(place), Visibility::Public(word) | Visibility::Restricted(VisRestricted { pub_token: word, .. })) =
        (fragment, &mut visibility)
    {
        word.span = place;
    }
    Ok(visibility)
}

fn is_default_function(input: ParseStream<'_>) -> bool {
    let fork = input.fork();
    fork.call(Ident::parse_any).is_ok_and(|word| word == "default") && is_function(&fork)
}

/// Whether a function's qualifiers and `fn` follow.
fn is_function(fork: ParseStream<'_>) -> bool {
    let qualified = (|| {
        fork.parse::<Option<Token![const]>>()?;
        fork.parse::<Option<Token![async]>>()?;
        if fork.peek(Token![unsafe]) || (fork.peek(syn::Ident) && fork.peek2(Token![fn])) {
            fork.call(Ident::parse_any)?;
        }
        fork.parse::<Option<syn::Abi>>()?;
        syn::Result::Ok(fork.peek(Token![fn]))
    })();
    qualified.unwrap_or(false)
}

/// The error for an item that is and holds no function, at the word that says which item it is.
fn other_item(input: ParseStream<'_>) -> syn::Error {
    let message = "expected a function, `impl` block, trait or module";
    if input.peek(Token![unsafe]) {
        let _: syn::Result<Token![unsafe]> = input.parse();
    }
    match input.call(Ident::parse_any) {
        Ok(keyword) => syn::Error::new_spanned(keyword, message),
        Err(_) => input.error(message),
    }
}

/// Splits `#![…]` off a body. A body that is wrong there is left whole, for rustc to report.
fn split_inner_attributes(body: Group) -> (Vec<Attribute>, Group) {
    let split = |input: ParseStream<'_>| {
        let attributes = input.call(Attribute::parse_inner)?;
        let rest: TokenStream = input.parse()?;
        Ok((attributes, rest))
    };
    match split.parse2(body.stream()) {
        Ok((attributes, rest)) if !attributes.is_empty() => {
            let rest = in_braces_of(&body, rest);
            (attributes, rest)
        }
        _ => (Vec::new(), body),
    }
}

/// Other tokens between the braces of `body`.
///
/// The braces stay the user's: lints that look at where a function or a block begins must find the user's code there.
pub(crate) fn in_braces_of(body: &Group, tokens: TokenStream) -> Group {
    let mut group = Group::new(Delimiter::Brace, tokens);
    group.set_span(body.span());
    group
}
