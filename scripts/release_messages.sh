#!/bin/sh -e
# Puts interfaces/crossspec_msgs of the last commit into a repository of its own, in FOLDER, and tags its version:
# scripts/release_messages.sh FOLDER. A further release is a further commit there. See CONTRIBUTING.md.
folder=$(realpath -m "${1:?name the folder of the repository}")
cd "$(dirname "$0")/.."
version=$(sed -n 's|.*<version>\(.*\)</version>.*|\1|p' interfaces/crossspec_msgs/package.xml)
if grep -q example.org interfaces/crossspec_msgs/package.xml; then
  echo "interfaces/crossspec_msgs/package.xml still has addresses at example.org: write the real ones" >&2
  exit 1
fi
[ -d "$folder/.git" ] || git init --quiet --initial-branch main "$folder"
if git -C "$folder" rev-parse --quiet --verify "refs/tags/$version" > /dev/null; then
  echo "$folder has a tag $version: raise the version, see CONTRIBUTING.md" >&2
  exit 1
fi
git -C "$folder" rm -r --quiet --ignore-unmatch .
git archive HEAD:interfaces/crossspec_msgs | tar x -C "$folder"
git archive HEAD LICENSE | tar x -C "$folder"
git -C "$folder" add --all
git -C "$folder" commit --quiet --message "$version"
git -C "$folder" tag "$version"
