//! `.await` in a block that is no `async` block: a scope must not stay open across it, where other tasks would run in it.

use crate::errors::Errors;
use proc_macro2::{Delimiter, Group, Ident, TokenStream, TokenTree};
use syn::parse::Parser as _;
use syn::visit_mut::{self, VisitMut};
use syn::{Block, ExprAsync, ExprAwait, ExprClosure, Item, Macro};

/// Reports each `.await` of the block itself. In a block that does not parse none is found; rustc reports it.
pub(crate) fn check(block: &Group, errors: &mut Errors) {
    let Ok(mut statements) = Block::parse_within.parse2(block.stream()) else { return };
    let mut finder = Finder { errors };
    for statement in &mut statements {
        finder.visit_stmt_mut(statement);
    }
}

struct Finder<'a> {
    errors: &'a mut Errors,
}

impl Finder<'_> {
    fn found(&mut self, await_token: &Ident) {
        self.errors.push_at(
            await_token,
            "`.await` in a measured block: write `track_memory_block!(…, async { … }).await`, which measures each poll",
        );
    }

    /// Looks through what a macro is given, of which only tokens are known.
    fn look_through(&mut self, tokens: TokenStream) {
        let (mut after_dot, mut after_async) = (false, false);
        for token in tokens {
            match &token {
                TokenTree::Ident(word) if after_dot && word == "await" => self.found(word),
                TokenTree::Group(group) if !(after_async && group.delimiter() == Delimiter::Brace) => {
                    self.look_through(group.stream());
                }
                _ => {}
            }
            after_dot = matches!(&token, TokenTree::Punct(punct) if punct.as_char() == '.');
            after_async = match &token {
                TokenTree::Ident(word) => word == "async" || (after_async && word == "move"),
                _ => false,
            };
        }
    }
}

impl VisitMut for Finder<'_> {
    fn visit_expr_await_mut(&mut self, node: &mut ExprAwait) {
        visit_mut::visit_expr_await_mut(self, node);
        self.found(&Ident::new("await", node.await_token.span));
    }

    fn visit_macro_mut(&mut self, node: &mut Macro) {
        self.look_through(node.tokens.clone());
    }

    // An `.await` in these stops something else than the block.
    fn visit_expr_async_mut(&mut self, _: &mut ExprAsync) {}
    fn visit_expr_closure_mut(&mut self, _: &mut ExprClosure) {}
    fn visit_item_mut(&mut self, _: &mut Item) {}
}
