//! Looking at the values of early `return`s.
//!
//! Where the body cannot be a closure, as with `#[track_caller]`, `err` and `ret` need that. Each `return value` of the function itself reports its value on
//! the way; what is left is `?`, which leaves a function that returns a `Result` only with an error, and a `return` that a
//! macro writes, which cannot be seen here.

use crate::function::in_braces_of;
use proc_macro2::{Group, Span, TokenStream};
use quote::{ToTokens as _, quote, quote_spanned};
use syn::parse::Parser as _;
use syn::visit_mut::{self, VisitMut};
use syn::{Block, Expr, ExprAsync, ExprClosure, ExprConst, Ident, Item, Stmt};

/// Makes every `return value` of `body` a `return` that first tells `guard` what the closure `judge` says of `value`. A
/// body that does not parse is left as it is, for rustc to report.
pub(crate) fn report(body: &mut Group, private: &TokenStream, guard: &Ident, judge: &TokenStream) {
    let Ok(mut statements) = Block::parse_within.parse2(body.stream()) else { return };
    for statement in &mut statements {
        visit_returned(statement, &mut |value| {
            let returned = value.to_token_stream();
            *value = Expr::Verbatim(quote_spanned! {Span::mixed_site()=>
                #private::returned(&mut #guard, #returned, #judge)
            });
        });
    }
    *body = in_braces_of(body, quote!(#(#statements)*));
}

/// Visits the value of each `return` of the function itself, as far as a macro does not hide it.
pub(crate) fn visit_returned(statement: &mut Stmt, visit: &mut dyn FnMut(&mut Expr)) {
    Returns(visit).visit_stmt_mut(statement);
}

struct Returns<'a>(&'a mut dyn FnMut(&mut Expr));

impl VisitMut for Returns<'_> {
    fn visit_expr_mut(&mut self, node: &mut Expr) {
        visit_mut::visit_expr_mut(self, node);
        if let Expr::Return(expression) = node
            && let Some(value) = &mut expression.expr
        {
            (self.0)(value);
        }
    }

    // A `return` in these leaves something else than the function.
    fn visit_expr_closure_mut(&mut self, _: &mut ExprClosure) {}
    fn visit_expr_async_mut(&mut self, _: &mut ExprAsync) {}
    fn visit_expr_const_mut(&mut self, _: &mut ExprConst) {}
    fn visit_item_mut(&mut self, _: &mut Item) {}
}
