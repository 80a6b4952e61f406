# SPDX-License-Identifier: MIT
# Completion of czero for bash. Commands and options are those that `czero --help` lists.

_czero_options() { # of `czero COMMAND`, or of czero
    "${COMP_WORDS[0]}" "$@" --help 2>/dev/null | grep -oE '(^|[ ,])--?[a-z?][a-z-]*' | tr -d ' ,'
}

_czero_commands() {
    "${COMP_WORDS[0]}" --help 2>/dev/null | sed -n '/^ *Commands:/,/^$/s/^  \([a-z]*\) .*/\1/p'
}

_czero_rules() { # which no help lists: as the refusal of none does
    "${COMP_WORDS[0]}" convert --rule '' 2>&1 | sed -n 's/.*wanted one of: //p' | tr -d ,
}

_czero() {
    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]}
    COMPREPLY=()
    if [ "$COMP_CWORD" -eq 1 ] && [[ $word != -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$(_czero_commands)" -- "$word")
        return
    fi
    case ${COMP_WORDS[1]}:$before in
    convert:--format | convert:-f)
        mapfile -t COMPREPLY < <(compgen -W 'sharded safetensors hf torch dcp' -- "$word")
        return
        ;;
    convert:--rule | convert:-r | plan:--rule | plan:-r)
        mapfile -t COMPREPLY < <(compgen -W "$(_czero_rules)" -- "$word")
        return
        ;;
    bench:--only | bench:-o)
        mapfile -t COMPREPLY < <(compgen -W 'collectives rules' -- "$word")
        return
        ;;
    esac
    case $word in
    -*)
        if [ "$COMP_CWORD" -eq 1 ]; then
            mapfile -t COMPREPLY < <(compgen -W "$(_czero_options)" -- "$word")
        else
            mapfile -t COMPREPLY < <(compgen -W "$(_czero_options "${COMP_WORDS[1]}")" -- "$word")
        fi
        ;;
    *)
        compopt -o filenames 2>/dev/null
        mapfile -t COMPREPLY < <(compgen -f -- "$word")
        ;;
    esac
}

complete -F _czero czero
