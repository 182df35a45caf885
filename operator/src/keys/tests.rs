//! Table tests of one decision, and a simulation of many under crashes and races.

use expect_test::{Expect, expect};

use super::*;

const OVERLAP: Duration = Duration::from_secs(60);

fn key(number: u8) -> Key {
    Key::from_random([number; 32])
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).unwrap()
}

fn tokens(token: u8, next: Option<u8>) -> Tokens {
    Tokens {
        token: key(token),
        next: next.map(key),
    }
}

/// `1` is active or prepared, `1@160` retires at second 160.
fn published(text: &str) -> Vec<KeyStatus> {
    text.split_whitespace()
        .map(|entry| {
            let (number, expires_at) = match entry.split_once('@') {
                Some((number, second)) => (number, Some(at(second.parse().unwrap()).to_string())),
                None => (entry, None),
            };
            KeyStatus {
                expires_at,
                ..new_entry(&key(number.parse().unwrap()), at(0))
            }
        })
        .collect()
}

fn number(key: &Key) -> u8 {
    (0..=u8::MAX)
        .find(|&number| self::key(number).digest() == key.digest())
        .unwrap()
}

fn shown(decision: &Decision) -> String {
    let tokens = |tokens: &Tokens| match &tokens.next {
        Some(next) => format!("token {} next {}", number(&tokens.token), number(next)),
        None => format!("token {}", number(&tokens.token)),
    };
    let write = match &decision.write {
        Write::Nothing => "nothing".to_owned(),
        Write::Create(made) => format!("create {}", tokens(made)),
        Write::Update(made) => format!("update {}", tokens(made)),
        Write::Delete => "delete".to_owned(),
    };
    let keys: Vec<String> = decision
        .keys
        .iter()
        .map(|entry| {
            let number = (0..=u8::MAX)
                .find(|&number| key(number).digest().to_string() == entry.digest)
                .unwrap();
            let end = expires_at(entry)
                .map(|at| format!("@{}", at.as_second()))
                .unwrap_or_default();
            format!("{number}{end}")
        })
        .collect();
    let mut text = format!(
        "{write}; keys [{}]; {:?}",
        keys.join(" "),
        decision.standing
    );
    if let Some(happened) = decision.happened {
        text += &format!("; {happened:?}");
    }
    if decision.asked_is_done {
        text += "; asked";
    }
    if let Some(at) = decision.again_at {
        text += &format!("; again {}", at.as_second());
    }
    text
}

/// At second 100; a fresh key is key 9.
struct Case<'a> {
    wanted: Wanted,
    stored: Stored,
    published: &'a str,
    every: Option<u64>,
    asked: bool,
    is_accepted: bool,
    is_taken: bool,
    moved: Option<Tokens>,
}

const PLAIN: Case<'static> = Case {
    wanted: Wanted::Key,
    stored: Stored::Absent,
    published: "",
    every: None,
    asked: false,
    is_accepted: true,
    is_taken: false,
    moved: None,
};

#[track_caller]
fn check(case: Case<'_>, expected: Expect) {
    let published = published(case.published);
    let situation = Situation {
        wanted: case.wanted,
        rotation: Rotation {
            every: case.every.map(Duration::from_secs),
            asked: case.asked,
            overlap: OVERLAP,
        },
        stored: &case.stored,
        moved: case.moved.as_ref(),
        published: &published,
        is_accepted: case.is_accepted,
        is_taken: case.is_taken,
        now: at(100),
    };
    expected.assert_eq(&shown(&mint(&situation, || key(9))));
}

fn ours(token: u8, next: Option<u8>) -> Stored {
    Stored::Ours(Some(tokens(token, next)))
}

#[test]
fn a_key_is_minted_once_and_then_left_alone() {
    check(PLAIN, expect!["create token 9; keys [9]; Active"]);
    // The status was not written, or was lost: what lies there is published, not replaced.
    check(
        Case {
            stored: ours(1, None),
            ..PLAIN
        },
        expect!["nothing; keys [1]; Active"],
    );
    check(
        Case {
            stored: ours(1, None),
            published: "1",
            ..PLAIN
        },
        expect!["nothing; keys [1]; Active"],
    );
}

#[test]
fn a_lost_secret_revokes_its_keys_and_brings_a_new_one() {
    check(
        Case {
            published: "1 2@130",
            ..PLAIN
        },
        expect!["create token 9; keys [9]; Active; Regenerated"],
    );
    // The same after a crash between the Secret and the status.
    check(
        Case {
            stored: ours(9, None),
            published: "1 2@130",
            ..PLAIN
        },
        expect!["nothing; keys [9]; Active; Regenerated"],
    );
    // A Secret without a valid key in it is a lost one.
    check(
        Case {
            stored: Stored::Ours(None),
            published: "1",
            ..PLAIN
        },
        expect!["update token 9; keys [9]; Active; Regenerated"],
    );
}

#[test]
fn somebody_elses_secret_is_never_written() {
    check(
        Case {
            stored: Stored::Foreign,
            published: "1",
            ..PLAIN
        },
        expect!["nothing; keys []; Conflict"],
    );
    check(
        Case {
            stored: Stored::Going,
            ..PLAIN
        },
        expect!["nothing; keys []; Going"],
    );
}

#[test]
fn a_token_that_belongs_to_another_is_replaced() {
    check(
        Case {
            stored: ours(1, None),
            is_taken: true,
            ..PLAIN
        },
        expect!["update token 9; keys [9]; Active"],
    );
}

#[test]
fn a_rotation_prepares_publishes_activates_and_retires() {
    let asked = || Case {
        asked: true,
        ..PLAIN
    };
    // Prepared: in the Secret, and published in the same turn.
    check(
        Case {
            stored: ours(1, None),
            published: "1",
            ..asked()
        },
        expect!["update token 1 next 9; keys [1 9]; Rotating; asked"],
    );
    // Crashed in between: published now, and not activated before that.
    check(
        Case {
            stored: ours(1, Some(2)),
            published: "1",
            ..asked()
        },
        expect!["nothing; keys [1 2]; Rotating; asked"],
    );
    // Waits for the replicas, however long that takes.
    check(
        Case {
            stored: ours(1, Some(2)),
            published: "1 2",
            is_accepted: false,
            ..PLAIN
        },
        expect!["nothing; keys [1 2]; Rotating"],
    );
    check(
        Case {
            stored: ours(1, Some(2)),
            published: "1 2",
            ..PLAIN
        },
        expect!["update token 2; keys [1@160 2]; Active; Rotated; again 160"],
    );
    // Crashed in between: the status catches up.
    check(
        Case {
            stored: ours(2, None),
            published: "1 2",
            ..PLAIN
        },
        expect!["nothing; keys [1@160 2]; Active; again 160"],
    );
    check(
        Case {
            stored: ours(2, None),
            published: "1@101 2",
            ..PLAIN
        },
        expect!["nothing; keys [1@101 2]; Active; again 101"],
    );
    check(
        Case {
            stored: ours(2, None),
            published: "1@100 2",
            ..PLAIN
        },
        expect!["nothing; keys [2]; Active"],
    );
}

#[test]
fn a_period_rotates_when_it_is_over_and_nothing_retires() {
    let every = |seconds| Case {
        stored: ours(1, None),
        published: "1",
        every: Some(seconds),
        ..PLAIN
    };
    check(every(101), expect!["nothing; keys [1]; Active; again 101"]);
    check(
        every(100),
        expect!["update token 1 next 9; keys [1 9]; Rotating"],
    );
    check(
        Case {
            stored: ours(1, None),
            published: "0@130 1",
            ..every(100)
        },
        expect!["nothing; keys [0@130 1]; Active; again 130"],
    );
    // A person who asks gets a new key at once, as long as the list has room.
    check(
        Case {
            stored: ours(1, None),
            published: "0@130 1",
            asked: true,
            ..PLAIN
        },
        expect!["update token 1 next 9; keys [0@130 1 9]; Rotating; asked; again 130"],
    );
    check(
        Case {
            stored: ours(1, None),
            published: "2@130 3@130 4@130 5@130 6@130 7@130 8@130 1",
            asked: true,
            ..PLAIN
        },
        expect!["nothing; keys [2@130 3@130 4@130 5@130 6@130 7@130 8@130 1]; Active; again 130"],
    );
}

#[test]
fn a_suspended_key_neither_rotates_nor_goes() {
    let suspended = || Case {
        wanted: Wanted::Suspended,
        ..PLAIN
    };
    check(
        Case {
            stored: ours(1, None),
            published: "1",
            every: Some(10),
            asked: true,
            ..suspended()
        },
        expect!["nothing; keys [1]; Active"],
    );
    check(
        Case {
            stored: ours(1, Some(2)),
            published: "1 2",
            ..suspended()
        },
        expect!["nothing; keys [1 2]; Rotating"],
    );
}

#[test]
fn a_revoked_key_is_gone_for_good() {
    let nothing = || Case {
        wanted: Wanted::Nothing,
        published: "1 2@130",
        ..PLAIN
    };
    check(
        Case {
            stored: ours(1, Some(3)),
            ..nothing()
        },
        expect!["delete; keys []; None"],
    );
    check(
        Case {
            stored: Stored::Foreign,
            ..nothing()
        },
        expect!["nothing; keys []; None"],
    );
    check(nothing(), expect!["nothing; keys []; None"]);
}

#[test]
fn a_key_moves_along_when_its_secret_gets_another_name() {
    check(
        Case {
            published: "1 2",
            moved: Some(tokens(1, Some(2))),
            ..PLAIN
        },
        expect!["create token 1 next 2; keys [1 2]; Active"],
    );
}

#[test]
fn a_key_that_was_brought_is_published_and_one_that_it_replaces_retires() {
    let check = |existing: Existing, old: &str, expected: Expect| {
        expected.assert_eq(&shown(&adopt(&existing, &published(old), OVERLAP, at(100))));
    };
    check(
        Existing::Key(key(1)),
        "",
        expect!["nothing; keys [1]; Active"],
    );
    check(
        Existing::Key(key(2)),
        "1",
        expect!["nothing; keys [1@160 2]; Active; again 160"],
    );
    check(
        Existing::Key(key(2)),
        "1@100 2",
        expect!["nothing; keys [2]; Active"],
    );
    check(Existing::Absent, "1", expect!["nothing; keys []; NotFound"]);
    check(Existing::Invalid, "1", expect!["nothing; keys []; Invalid"]);
    check(Existing::Taken, "1", expect!["nothing; keys []; InUse"]);
}

/// The stored state: a Secret and a status, each with its version, and a gateway that lags behind.
#[derive(Default)]
struct World {
    secret: Option<Tokens>,
    secret_version: u64,
    keys: Vec<KeyStatus>,
    status_version: u64,
    noted: u32,
    /// The status that every gateway replica goes by.
    served: u64,
    served_keys: Vec<KeyStatus>,
    now: i64,
    minted: u8,
}

/// One operator's turn, with what it read at its beginning. The status may be read from a cache that lags.
struct Turn {
    status_version: u64,
    secret_version: u64,
    noted: u32,
    decision: Decision,
    wrote_secret: bool,
}

impl World {
    fn begin(
        &mut self,
        statuses: &[(u64, Vec<KeyStatus>, u32)],
        lag: usize,
        annotation: u32,
    ) -> Turn {
        let (status_version, keys, noted) = &statuses[statuses.len().saturating_sub(1 + lag)];
        let stored = self
            .secret
            .clone()
            .map_or(Stored::Absent, |tokens| Stored::Ours(Some(tokens)));
        let situation = Situation {
            wanted: Wanted::Key,
            rotation: Rotation {
                every: None,
                asked: annotation != *noted,
                overlap: OVERLAP,
            },
            stored: &stored,
            moved: None,
            published: keys,
            is_accepted: self.served == *status_version,
            is_taken: false,
            now: at(self.now),
        };
        self.minted += 1;
        let fresh = self.minted;
        let decision = mint(&situation, || key(fresh));
        let noted = if annotation != *noted && !decision.asked_is_done {
            *noted
        } else {
            annotation
        };
        Turn {
            status_version: *status_version,
            secret_version: self.secret_version,
            noted,
            decision,
            wrote_secret: false,
        }
    }

    /// Writes the Secret as the API server would: create-only, or only over the version that was read.
    fn write_secret(&mut self, turn: &Turn) -> bool {
        match &turn.decision.write {
            Write::Nothing => true,
            Write::Create(tokens) if self.secret.is_none() => self.put(Some(tokens.clone())),
            Write::Update(tokens) if self.secret_version == turn.secret_version => {
                self.put(Some(tokens.clone()))
            }
            _ => false,
        }
    }

    fn put(&mut self, tokens: Option<Tokens>) -> bool {
        self.secret = tokens;
        self.secret_version += 1;
        true
    }

    fn write_status(&mut self, turn: &Turn) {
        if self.status_version == turn.status_version
            && (self.keys != turn.decision.keys || self.noted != turn.noted)
        {
            self.keys = turn.decision.keys.clone();
            self.noted = turn.noted;
            self.status_version += 1;
        }
    }

    fn serve(&mut self) {
        self.served = self.status_version;
        self.served_keys = self.keys.clone();
    }

    /// Whether a client that reads the Secret now gets in, at replicas that lag behind the status.
    fn is_accepted(&self, key: &Key) -> bool {
        self.served_keys.iter().any(|entry| {
            entry.digest == key.digest().to_string()
                && expires_at(entry).is_none_or(|at| at > self::at(self.now))
        })
    }
}

// P3, P7: whatever crashes, races and lagging caches do, there is one active key, and the one in the Secret works.
#[test]
fn crashes_races_and_stale_caches_never_make_two_keys_or_a_dead_one() {
    for seed in 0..1_000_u64 {
        let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut roll = |sides: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random % sides
        };
        let mut world = World {
            now: 1_000,
            ..World::default()
        };
        let mut statuses = vec![(0, Vec::new(), 0)];
        let mut turns: [Option<Turn>; 2] = [None, None];
        let mut annotation = 0;
        let mut was_ready = false;
        for _ in 0..60 {
            let operator = roll(2) as usize;
            match roll(8) {
                0 if annotation < 3 => annotation += 1,
                1 => world.now += 25,
                2 => world.serve(),
                // kill -9 at this very point.
                3 => turns[operator] = None,
                _ => match turns[operator].take() {
                    None => {
                        turns[operator] = Some(world.begin(&statuses, roll(3) as usize, annotation))
                    }
                    Some(mut turn) if !turn.wrote_secret => {
                        turn.wrote_secret = true;
                        if world.write_secret(&turn) {
                            turns[operator] = Some(turn);
                        }
                    }
                    Some(turn) => {
                        world.write_status(&turn);
                        if statuses.last().unwrap().0 != world.status_version {
                            statuses.push((world.status_version, world.keys.clone(), world.noted));
                        }
                    }
                },
            }
            let Some(tokens) = &world.secret else {
                continue;
            };
            was_ready |= world.is_accepted(&tokens.token);
            assert!(
                !was_ready || world.is_accepted(&tokens.token),
                "seed {seed}: the key in the Secret is dead"
            );
            let endless = world
                .keys
                .iter()
                .filter(|entry| entry.expires_at.is_none())
                .count();
            assert!(endless <= 2, "seed {seed}: {:?}", world.keys);
            assert!(world.keys.len() <= MOST_KEYS, "seed {seed}");
        }
        // Left in peace, it comes to rest with one key.
        for _ in 0..20 {
            world.now += 61;
            world.serve();
            let turn = world.begin(
                &[(world.status_version, world.keys.clone(), world.noted)],
                0,
                annotation,
            );
            assert!(world.write_secret(&turn), "seed {seed}");
            world.write_status(&turn);
        }
        world.serve();
        let tokens = world.secret.as_ref().unwrap();
        assert!(tokens.next.is_none(), "seed {seed}");
        assert_eq!(world.keys.len(), 1, "seed {seed}: {:?}", world.keys);
        assert!(world.is_accepted(&tokens.token), "seed {seed}");
        assert_eq!(world.noted, annotation, "seed {seed}");
    }
}
