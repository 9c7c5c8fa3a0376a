//! Runs every short sequence of opening, closing, events (stale ones too) and wake-ups against a model. Each socket's
//! tasks must learn exactly what was reported for that socket, and no event may stay undelivered.

use super::*;

/// Steps per sequence. The bug this test was written for needs five.
const STEPS: usize = 6;

/// Most sockets that a sequence opens, so that a place has up to three owners.
const OPENED: usize = 3;

#[derive(Clone, Copy, Debug)]
enum Step {
    Open(Class),
    Close(usize),
    /// The kernel reports this for the n-th opened socket, even if it is closed.
    Event(usize, u8),
    /// The first client in line is woken.
    Tell,
}

/// A socket as the model sees it.
struct Model {
    place: Option<Place>,
    name: Name,
    class: Class,
    /// Everything reported for it while it was open.
    reported: u8,
    woken: Arc<Woken>,
}

fn steps(opened: &[Model]) -> Vec<Step> {
    let mut all = vec![Step::Tell];
    if opened.len() < OPENED {
        all.extend([Step::Open(Class::Client), Step::Open(Class::Upstream)]);
    }
    for (number, model) in opened.iter().enumerate() {
        all.extend([Step::Event(number, READ), Step::Event(number, READ | ENDED)]);
        if model.place.is_some() {
            all.push(Step::Close(number));
        }
    }
    all
}

fn apply(sockets: &Rc<Sockets>, opened: &mut Vec<Model>, step: Step) {
    match step {
        Step::Open(class) => {
            let place = sockets.place(class, 0);
            let woken = Arc::<Woken>::default();
            place.slot.reader.set(Some(Waker::from(Arc::clone(&woken))));
            opened.push(Model { name: place.name, place: Some(place), class, reported: 0, woken });
        }
        Step::Close(number) => opened[number].place = None,
        Step::Event(number, found) => {
            let model = &mut opened[number];
            if model.place.is_some() {
                model.reported |= found;
            }
            match model.name.class() {
                Class::Client => sockets.queue(model.name, found),
                Class::Upstream => sockets.tell(model.name, found),
            }
        }
        Step::Tell => sockets.tell_lines(1),
    }
}

/// The properties that hold after any sequence.
fn check(sockets: &Sockets, opened: &[Model], sequence: &[Step]) {
    sockets.tell_lines(usize::MAX);
    assert!(sockets.is_empty(), "{sequence:?}: somebody still stands in the line");
    for (number, model) in opened.iter().enumerate() {
        let Some(place) = &model.place else { continue };
        assert_eq!(place.name.class(), model.class);
        assert_eq!(place.slot.ready.get(), model.reported, "{sequence:?}: socket {number}");
        let woken = model.woken.0.load(Relaxed);
        assert_eq!(woken > 0, model.reported != 0, "{sequence:?}: socket {number} was woken {woken} times");
    }
}

#[test]
fn no_event_of_an_earlier_owner_reaches_or_silences_the_present_one() {
    let set = mio::Poll::new().unwrap();
    let mut sequences: Vec<Vec<Step>> = vec![Vec::new()];
    let mut explored = 0_u32;
    while let Some(sequence) = sequences.pop() {
        let sockets = Rc::new(Sockets::new(set.registry().try_clone().unwrap()));
        let mut opened = Vec::new();
        for step in &sequence {
            apply(&sockets, &mut opened, *step);
        }
        if sequence.len() < STEPS {
            sequences.extend(steps(&opened).into_iter().map(|next| [&sequence[..], &[next]].concat()));
        }
        check(&sockets, &opened, &sequence);
        explored += 1;
    }
    assert!(explored > 50_000, "only {explored} sequences");
}
