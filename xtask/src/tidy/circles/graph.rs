//! The graph of imports between the modules of a crate, and its circles.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::modules::{Crate, ModulePath};

/// Imports by the numbers of their modules.
pub(super) struct Graph {
    names: Vec<ModulePath>,
    imports: Vec<BTreeSet<usize>>,
}

/// A re-export may lead to another one, and a wrong one to itself.
const MAX_RE_EXPORTS: usize = 8;

impl Graph {
    pub(super) fn of(read: &Crate) -> Self {
        let names: Vec<ModulePath> = read.modules.keys().cloned().collect();
        let numbers: BTreeMap<_, _> = names.iter().zip(0..).collect();
        let imports = read.modules.iter().map(|(name, module)| {
            let used = module
                .exports
                .iter()
                .filter(|(export, _)| module.identifiers.contains(*export));
            let paths = module.paths.iter().chain(used.map(|(_, path)| path));
            let targets = paths.filter_map(|path| resolve(read, name, path, MAX_RE_EXPORTS));
            let others = targets.filter(|target| target != name);
            others
                .filter_map(|target| numbers.get(&target).copied())
                .collect()
        });
        let imports = imports.collect();
        Self { names, imports }
    }

    /// Sets of several modules each of which reaches all others.
    pub(super) fn circles(&self) -> Vec<Vec<usize>> {
        let reach: Vec<BTreeSet<usize>> = (0..self.names.len()).map(|at| self.reach(at)).collect();
        let reaches = |from: usize, to: usize| reach.get(from).is_some_and(|all| all.contains(&to));
        let mut circles: Vec<Vec<usize>> = Vec::new();
        for at in 0..self.names.len() {
            if circles.iter().any(|circle| circle.contains(&at)) {
                continue;
            }
            let circle: Vec<usize> = (at..self.names.len())
                .filter(|other| *other == at || (reaches(at, *other) && reaches(*other, at)))
                .collect();
            if circle.len() > 1 {
                circles.push(circle);
            }
        }
        circles
    }

    /// The folder of all modules of a circle, with `/`; empty for the source folder itself.
    pub(super) fn common_folder(&self, circle: &[usize]) -> String {
        let mut names = circle.iter().filter_map(|at| self.names.get(*at));
        let mut common = names.next().cloned().unwrap_or_default();
        for name in names {
            let same = common.iter().zip(name).take_while(|(a, b)| a == b).count();
            common.truncate(same);
        }
        common.join("/")
    }

    /// The shortest way from a module of the circle back to it.
    pub(super) fn shortest_cycle(&self, circle: &[usize]) -> Vec<String> {
        let cycles = circle.iter().filter_map(|at| self.cycle_through(*at));
        let shortest = cycles.min_by_key(Vec::len).unwrap_or_default();
        shortest.into_iter().map(|at| self.label(at)).collect()
    }

    fn label(&self, at: usize) -> String {
        match self.names.get(at) {
            Some(name) if !name.is_empty() => name.join("/"),
            _ => "the root".to_owned(),
        }
    }

    fn cycle_through(&self, start: usize) -> Option<Vec<usize>> {
        let mut before = BTreeMap::new();
        let mut queue = VecDeque::from([start]);
        while let Some(at) = queue.pop_front() {
            for next in self.imports.get(at)? {
                if *next == start {
                    let mut cycle = vec![start, at];
                    let mut at = at;
                    while at != start {
                        at = *before.get(&at)?;
                        cycle.push(at);
                    }
                    cycle.reverse();
                    return Some(cycle);
                }
                if *next != start && !before.contains_key(next) {
                    before.insert(*next, at);
                    queue.push_back(*next);
                }
            }
        }
        None
    }

    fn reach(&self, start: usize) -> BTreeSet<usize> {
        let mut reached = BTreeSet::new();
        let mut open = vec![start];
        while let Some(at) = open.pop() {
            for next in self.imports.get(at).into_iter().flatten() {
                if reached.insert(*next) {
                    open.push(*next);
                }
            }
        }
        reached
    }
}

/// The module that defines what a path names; `None` for another crate.
fn resolve(read: &Crate, from: &[String], path: &[String], left: usize) -> Option<ModulePath> {
    let (first, mut rest) = path.split_first()?;
    let mut module = match first.as_str() {
        "crate" => Vec::new(),
        "self" => from.to_vec(),
        "super" => parent(from),
        name => {
            let child = child(from, name);
            read.modules.contains_key(&child).then_some(child)?
        }
    };
    while let Some((name, after)) = rest.split_first() {
        let inner = child(&module, name);
        if name == "super" {
            module = parent(&module);
        } else if read.modules.contains_key(&inner) {
            module = inner;
        } else {
            let export = read.modules.get(&module)?.exports.get(name);
            let Some(export) = export.filter(|_| left > 0) else {
                break;
            };
            let mut target = export.clone();
            target.extend_from_slice(after);
            return resolve(read, &module, &target, left - 1).or(Some(module));
        }
        rest = after;
    }
    Some(module)
}

fn child(module: &[String], name: &str) -> ModulePath {
    let mut child = module.to_vec();
    child.push(name.to_owned());
    child
}

fn parent(module: &[String]) -> ModulePath {
    let mut parent = module.to_vec();
    parent.pop();
    parent
}
