# Sourced: `phase NAME COMMAND…` runs one step and says what it took.
phase() {
  local name=$1 begin=$SECONDS outcome=0
  shift
  echo "=== $name"
  "$@" || outcome=$?
  echo "=== $name: $((SECONDS - begin)) s$([ $outcome = 0 ] || echo ", failed")"
  return $outcome
}
