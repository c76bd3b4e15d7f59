#!/usr/bin/env bash
# Packs what a first run needs on a GPU machine without a network into one ignored folder of a repository: the project, and the wheels
# that such a machine lacks.
#   bash scripts/gpu/prepare.sh [REPO]
# REPO: the repository that travels to the GPU machine (default: this one).
set -euo pipefail
project=$(git -C "$(dirname "$0")" rev-parse --show-toplevel)
repo=$(git -C "${1:-$project}" rev-parse --show-toplevel)
exclude=$(git -C "$repo" rev-parse --path-format=absolute --git-path info/exclude)
mkdir -p "$(dirname "$exclude")"
grep -qx '/.gpu/' "$exclude" 2>/dev/null || echo '/.gpu/' >> "$exclude"

rm -rf "$repo/.gpu"
mkdir -p "$repo/.gpu/jaxroute" "$repo/.gpu/wheels"
# The commit, and what is edited or new beside it; of the stored results only the instructions of a round, for the ceilings.
cd "$project"
{
  git ls-files -z --cached --others --exclude-standard -- . ':!:notebooks' ':!:scripts/bench_results'
  git ls-files -z --cached --others --exclude-standard -- scripts/bench_results/resources.json
} | while IFS= read -r -d '' file; do
  if [ -f "$file" ]; then printf '%s\0' "$file"; fi
done | tar -cf - --null -T - | tar -C "$repo/.gpu/jaxroute" -xf -
git rev-parse HEAD > "$repo/.gpu/jaxroute/COMMIT"

# zstandard, and what the options of pytest need. Python 3.12, CUDA 13, jax, flax, optax, chex, xarray and pytest are there.
platforms=()
for version in 2014 _2_17 _2_24 _2_27 _2_28 _2_31 _2_34; do platforms+=(--platform "manylinux${version}_x86_64"); done
python3 -m pip download -q --no-deps --only-binary=:all: --python-version 3.12 --implementation cp "${platforms[@]}" \
  -d "$repo/.gpu/wheels" zstandard pytest-xdist execnet
ls -1 "$repo/.gpu/wheels"
du -sh "$repo/.gpu"
if [ "$(du -sm "$repo/.gpu" | cut -f1)" -ge 64 ]; then
  echo "that is more than the 64 MiB that can be carried" >&2
  exit 1
fi
command="PYTHONPATH=/tmp/site python3 -u .gpu/jaxroute/scripts/gpu/first_run.py"
echo
echo "on the GPU machine, in the root of $(basename "$repo"), with .gpu carried along and OUT naming a folder for the results:"
echo "python3 -m pip install -q --no-index --no-deps --target /tmp/site .gpu/wheels/*.whl && $command"
echo "and then, with a copy of its results.json: $command --resume results.json; $command --only pytest"
