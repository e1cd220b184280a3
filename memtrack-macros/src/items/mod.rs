//! `#[track_memory]` on what holds functions: `impl` blocks, traits and inline modules.
//!
//! [`member`] splits a block into its members without reading their bodies, [`own`] finds the attributes that members
//! carry themselves, [`inherit`] merges the options, [`naming`] says what a method is called. How a function is measured
//! is not decided here: each ends in [`crate::expand::attribute`], as if it were annotated by itself.
//!
//! Functions are expanded together with their block, before any other attribute of theirs or of the block: so an
//! `async fn` below `#[async_trait]` is still one, and `#[test]` finds a function that is measured.

mod inherit;
mod member;
mod naming;
mod own;

use crate::args::Args;
use crate::check::naked;
use crate::errors::Errors;
use crate::expand;
use crate::function::{Function, in_braces_of};
use crate::options::Options;
use member::{Kind, Member};
use proc_macro2::{Group, TokenStream};
use quote::{ToTokens as _, quote};

/// Expands `#[track_memory(args)] item` where that is no matter of a single function; none where it is.
pub(crate) fn attribute(args: &TokenStream, item: &TokenStream) -> Option<TokenStream> {
    if own::is_spent(args) {
        return Some(item.clone());
    }
    let options = Options::read(args.clone());
    if let Some(skip) = options.skip_word() {
        let message = if options.is_skip() {
            "`#[track_memory(skip)]` leaves a function, `impl` block, trait or module out of the annotated block around it, \
             and nothing around this one is annotated; of arguments `skip` needs the names, as in `skip(weights)`"
        } else {
            "`skip` stands alone, as what is left out has no options; of arguments it needs the names, as in `skip(weights)`"
        };
        return Some(with_error(&syn::Error::new_spanned(skip, message), item));
    }
    let member = Member::read_one(item.clone())?;
    match &member.kind {
        Kind::Block(_) => Some(expand_block(args.clone(), &member)),
        Kind::ModuleFile(semicolon) => {
            let message = "inline module needed, as in `mod m { … }`: what is in another file cannot be seen here";
            Some(with_error(&syn::Error::new_spanned(semicolon, message), item))
        }
        Kind::Other if !member.is_item() => {
            let message = "expected a function, `impl` block, trait or module; what stands in a body is measured by \
                           `track_memory_block!(\"name\", { … })`";
            // Without the code: where an expression is expected, only one can be emitted.
            Some(syn::Error::new_spanned(member.tokens.first(), message).to_compile_error())
        }
        Kind::Function { .. } | Kind::Other => None,
    }
}

fn with_error(error: &syn::Error, item: &TokenStream) -> TokenStream {
    let error = error.to_compile_error();
    quote!(#error #item)
}

/// Expands an annotated block. If its options are wrong, nothing in it inherits them.
fn expand_block(args: TokenStream, block: &Member) -> TokenStream {
    let Kind::Block(body) = &block.kind else { return block.to_token_stream() };
    let mut errors = Errors::default();
    let options = inherit::for_block(Options::read(args), &mut errors);
    Args::read(options.tokens(), &mut errors);
    if let Some(errors) = errors.finish() {
        let block = without_skips(block);
        return quote!(#errors #block);
    }
    let prefix = naming::prefix(block);
    let expanded = map_members(body, |member| expand_member(&member, &options, prefix.as_deref()));
    block.with_body(expanded)
}

/// A body whose members are replaced one by one.
fn map_members(body: &Group, replace: impl FnMut(Member) -> TokenStream) -> Group {
    let (inner_attributes, members) = member::read_members(body.stream());
    let members = members.into_iter().map(replace);
    in_braces_of(body, quote!(#inner_attributes #(#members)*))
}

/// Expands one member of a block whose options are `outer`. `prefix` is what its name begins with, if it is a method.
fn expand_member(member: &Member, outer: &Options, prefix: Option<&str>) -> TokenStream {
    let own = own::Attributes::of(member);
    if own.skips() {
        return own.without_skips(member).to_token_stream();
    }
    let function = match &member.kind {
        // Nothing to measure: what the attribute has to say where it stands there itself, it says there.
        Kind::Function { has_body: false } | Kind::ModuleFile(_) | Kind::Other => return member.to_token_stream(),
        Kind::Function { has_body: true } => Function::read(member.to_token_stream(), &mut Errors::default()),
        Kind::Block(_) => None,
    };
    if function.as_ref().is_some_and(|function| function.signature.constness.is_some() || naked(function).is_some()) {
        return member.to_token_stream();
    }
    let name = function.as_ref().and_then(|function| naming::method(prefix?, &function.signature.ident));
    let merge = |given: TokenStream| inherit::inherited(outer, &Options::read(given), function.as_ref(), name.as_ref());
    match own.expanded_here(member) {
        Some((given, member)) => {
            let options = merge(given);
            match &member.kind {
                Kind::Block(_) => expand_block(options, &member),
                _ => expand::attribute(options, member.to_token_stream()),
            }
        }
        None => own.rewritten(member, merge).to_token_stream(),
    }
}

/// A block that is not expanded, without the `#[track_memory(skip)]`s that have no meaning then.
fn without_skips(block: &Member) -> TokenStream {
    let Kind::Block(body) = &block.kind else { return block.to_token_stream() };
    let body = map_members(body, |member| {
        let own = own::Attributes::of(&member);
        let member = own.without_skips(&member);
        // A block that is annotated itself is expanded later, with what it holds.
        if own.is_empty() { without_skips(&member) } else { member.to_token_stream() }
    });
    block.with_body(body)
}
