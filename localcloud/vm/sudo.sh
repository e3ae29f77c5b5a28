#!/bin/sh
# Everybody is the only user of this VM, so there is nothing to switch to.
while :; do
    case "$1" in
        -u|-g) shift 2 ;;
        -*) shift ;;
        *) break ;;
    esac
done
exec env "$@"
