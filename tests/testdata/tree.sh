#!/bin/bash
# A tree that does not want to end. Every process writes its pid into $1/pids before it goes on for ever; "leader" makes the leader trap TERM.
cd "$1" || exit 1
note='echo $$ >> pids; trap "" TERM; exec sleep 1000'
[ "$2" = leader ] && trap '' TERM
sh -c "$note" &                                                  # a child
setsid sh -c "$note" &                                           # left the session
( setsid sh -c "sh -c '$note' & exit 0" & )                      # a double fork, parent gone
env -i /bin/sh -c "cd '$1'; $note" &                             # no marker in its environment
setsid env -i /bin/sh -c "cd '$1'; $note" &                      # neither session nor marker
( setsid env -i /bin/sh -c "/bin/sh -c 'cd $1; $note' & exit 0" & ) # an orphan with neither
while [ "$(wc -l < pids 2>/dev/null || echo 0)" -lt 6 ]; do sleep 0.05; done
echo $$ >> pids
touch ready
[ "$2" = leader ] || exit 0
while :; do sleep 1; done
