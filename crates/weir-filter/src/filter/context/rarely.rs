//! A value that few exchanges have. Dropping it costs the others one comparison.

use std::mem::{self, ManuallyDrop};
use std::ops::{Deref, DerefMut};

/// A value that is nearly always blank. The compiler's own drop of it would be a call in each exchange: 45 instructions
/// for the two such values of a context (count filters).
#[derive(Default)]
pub(in crate::filter) struct Rarely<T: Blank>(ManuallyDrop<T>);

/// A type with a value that holds nothing.
pub(in crate::filter) trait Blank: Default {
    /// Whether there is nothing to release.
    fn is_blank(&self) -> bool;
}

impl<T> Blank for Option<Box<T>> {
    #[inline]
    fn is_blank(&self) -> bool {
        self.is_none()
    }
}

impl<T> Blank for Vec<T> {
    #[inline]
    fn is_blank(&self) -> bool {
        self.capacity() == 0
    }
}

impl<T: Blank> Deref for Rarely<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Blank> DerefMut for Rarely<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

impl<T: Blank> Drop for Rarely<T> {
    #[inline]
    fn drop(&mut self) {
        if !self.0.is_blank() {
            release(&mut *self.0);
        }
    }
}

/// Releases a value. Not inlined, or the compiler would make the whole drop a call again.
#[cold]
#[inline(never)]
fn release<T: Blank>(value: &mut T) {
    drop(mem::take(value)); // leaves a blank value behind
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::rc::Rc;

    #[test]
    fn a_value_is_released_once() {
        let shared = Rc::new(());
        let mut boxed = Rarely::<Option<Box<Rc<()>>>>::default();
        let mut list = Rarely::<Vec<Rc<()>>>::default();
        drop((Rarely::<Option<Box<Rc<()>>>>::default(), Rarely::<Vec<Rc<()>>>::default()));
        *boxed = Some(Box::new(Rc::clone(&shared)));
        list.extend([Rc::clone(&shared), Rc::clone(&shared)]);
        assert_eq!(Rc::strong_count(&shared), 4);
        drop(boxed);
        assert_eq!(Rc::strong_count(&shared), 3);
        drop(list);
        assert_eq!(Rc::strong_count(&shared), 1);
    }
}
