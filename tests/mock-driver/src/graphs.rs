//! Graphs: pieces of work, each with those that it comes after. Captures make them ([`crate::captures`]); launched, their work is
//! queued on one stream in the order in which it was captured.

use std::collections::{BTreeMap, BTreeSet};

use crate::errors::{Answer, INVALID_VALUE, NOT_SUPPORTED};
use crate::state::{HandleKind, State, call, free_handle, put};
use crate::streams::Work;

struct Node {
    work: Work,
    after: Vec<u64>,
}

/// Nodes by handle, which rise in the order in which they were captured.
#[derive(Default)]
pub(crate) struct Graph(BTreeMap<u64, Node>);

impl Graph {
    /// The nodes and all that come before them.
    pub(crate) fn up_to(&self, ends: &[u64]) -> BTreeSet<u64> {
        let mut found = BTreeSet::new();
        let mut open = ends.to_vec();
        while let Some(handle) = open.pop() {
            if found.insert(handle) {
                open.extend(self.0.get(&handle).into_iter().flat_map(|node| &node.after));
            }
        }
        found
    }
}

#[derive(Default)]
pub(crate) struct Graphs {
    /// Those whose capture has ended.
    pub(crate) whole: BTreeMap<u64, Graph>,
    executable: BTreeMap<u64, Vec<Work>>,
    node_count: u64,
}

impl Graphs {
    /// How many of both kinds there are.
    pub(crate) fn live(&self) -> usize {
        self.whole.len() + self.executable.len()
    }

    pub(crate) fn add_node(&mut self, graph: &mut Graph, work: Work, after: Vec<u64>) -> u64 {
        // Never given out again: a node that is not there any more is noticed.
        self.node_count += 1;
        let handle = HandleKind::Node as u64 + 0x100 * self.node_count;
        graph.0.insert(handle, Node { work, after });
        handle
    }
}

impl State {
    fn node_dependencies(&self, node: u64) -> Answer<Vec<u64>> {
        let graphs = self.captures.graphs_underway().chain(self.graphs.whole.values());
        graphs.filter_map(|graph| graph.0.get(&node)).map(|node| node.after.clone()).next().ok_or(INVALID_VALUE)
    }
}

/// Without places for nodes it says how many there are.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuGraphNodeGetDependencies(node: u64, dependencies: *mut u64, count: *mut usize) -> u32 {
    call("cuGraphNodeGetDependencies", |state| {
        let found = state.node_dependencies(node)?;
        if !dependencies.is_null() {
            // SAFETY: null or the caller's number, as cuda.h asks.
            let places = *unsafe { count.as_ref() }.ok_or(INVALID_VALUE)?;
            for (at, dependency) in found.iter().take(places).enumerate() {
                // SAFETY: the caller has so many places.
                unsafe { put(dependencies.add(at), *dependency) }?;
            }
        }
        // SAFETY: the caller's place, as cuda.h asks.
        unsafe { put(count, found.len()) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGraphInstantiateWithFlags(executable: *mut u64, graph: u64, _flags: u64) -> u32 {
    call("cuGraphInstantiateWithFlags", |state| {
        let graph = state.graphs.whole.get(&graph).ok_or(INVALID_VALUE)?;
        let work = graph.0.values().map(|node| node.work.clone()).collect();
        let handle = free_handle(&state.graphs.executable, HandleKind::Executable);
        state.graphs.executable.insert(handle, work);
        // SAFETY: the caller's place, as cuda.h asks.
        unsafe { put(executable, handle) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphLaunch(executable: u64, stream: u64) -> u32 {
    call("cuGraphLaunch", |state| {
        let key = state.stream_key(stream)?;
        // A graph within a graph, which this driver has not.
        if state.streams.get(&key).is_some_and(|stream| stream.capture.is_some()) {
            return Err(NOT_SUPPORTED);
        }
        let work = state.graphs.executable.get(&executable).ok_or(INVALID_VALUE)?.clone();
        work.into_iter().try_for_each(|work| state.enqueue(key, work))
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphExecDestroy(executable: u64) -> u32 {
    call("cuGraphExecDestroy", |state| state.graphs.executable.remove(&executable).map(drop).ok_or(INVALID_VALUE))
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphDestroy(graph: u64) -> u32 {
    call("cuGraphDestroy", |state| state.graphs.whole.remove(&graph).map(drop).ok_or(INVALID_VALUE))
}
